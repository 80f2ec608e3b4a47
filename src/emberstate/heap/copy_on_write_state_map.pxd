from emberstate.heap.before_images cimport MapImage
from emberstate.heap.copy_on_write_buckets cimport CopyOnWriteBuckets, head_of
from emberstate.heap.geometry cimport ABSENT_PAIR, SHARED_ENTRY
from emberstate.heap.page_table cimport PageTable
from emberstate.heap.snapshots cimport Snapshot
from emberstate.heap.state_map_entry cimport StateMapEntry
from emberstate.heap.value_kind cimport ValueKind

cdef class CopyOnWriteStateMap(CopyOnWriteBuckets):
    cpdef list cell(self, Py_ssize_t number, Py_ssize_t cells)
    cdef list cells_from(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t cells)
