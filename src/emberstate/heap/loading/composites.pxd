from emberstate.heap.loading.values cimport BulkLoader, bulk_insert, bulk_put
from emberstate.heap.map.copy_on_write_state_map cimport CopyOnWriteStateMap
from emberstate.heap.states.list_value cimport AppendList
from emberstate.heap.states.map_value cimport MapKind
from emberstate.state.row_columns cimport (
    APPENDED, CLEARED, PUT, REMOVED, RowColumns, has_stamp, is_null, order_of, raw_at, value_at
)

cdef bint begins(RowColumns columns, Py_ssize_t row) noexcept

cdef class CompositeLoader(BulkLoader):
    cdef bint cleared
    cdef bint first
    cdef bint fresh
    cdef Py_ssize_t start
    cdef int take(self, RowColumns columns, Py_ssize_t row) except -1
    cdef int finish(self) except -1

cdef class ListLoader(CompositeLoader):
    cdef list elements

cdef class MapLoader(CompositeLoader):
    cdef dict puts
    cdef list removed
    cdef Py_ssize_t steps
    cdef bytes last_user_key
    cdef bint timers
    cdef int change_large(self, CopyOnWriteStateMap large) except -1
    cdef int check_leavable(self, object user_key) except -1
    cdef int remove_entry(self) except -1
    cdef int replace(self, tuple small) except -1
