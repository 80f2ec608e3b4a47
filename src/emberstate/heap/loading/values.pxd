from emberstate.heap.map.chains cimport entry_in
from emberstate.heap.map.buckets cimport head_of, set_head
from emberstate.heap.map.copy_on_write_state_map cimport CopyOnWriteStateMap
from emberstate.heap.map.page_table cimport PageTable
from emberstate.state.row_columns cimport (
    CLEARED, REPLACED, Decoder, RowColumns, has_stamp, is_null, order_of, raw_at, value_at
)
from emberstate.heap.map.interface cimport StateMap
from emberstate.heap.map.entry cimport StateMapEntry, new_entry
from emberstate.heap.states.state_table cimport StateTable

cdef enum:
    CHECK_EVERY = 64

cdef int bulk_put(StateMap map, object key, object namespace, object state, bint new) except -1
cdef int bulk_insert(CopyOnWriteStateMap map, object key, object namespace, object state, bint new) except -1

cdef class BulkLoader:
    cdef readonly StateTable table
    cdef Decoder keys
    cdef Decoder namespaces
    cdef Decoder user_keys
    cdef Decoder values
    cdef object group_of
    cdef bint base
    cdef bint exact
    cdef bint stamped
    cdef bint keeps_stamps
    cdef object decided_stamp
    cdef readonly Py_ssize_t row
    cdef object last_group
    cdef bytes last_key
    cdef bytes last_namespace
    cdef StateMap map
    cdef Py_ssize_t group
    cdef object key
    cdef object namespace
    cdef Py_ssize_t namespace_row
    cdef int begin_run(self, RowColumns columns, Py_ssize_t start, Py_ssize_t entries) except -1
    cdef int end_run(self, RowColumns columns, Py_ssize_t stop) except -1
    cdef int begin_entry(self, RowColumns columns, Py_ssize_t row) except -1
    cdef object content(self, RowColumns columns, Py_ssize_t row)
    cdef int check_empty(self, RowColumns columns, Py_ssize_t row) except -1

cdef class ValueLoader(BulkLoader):
    pass
