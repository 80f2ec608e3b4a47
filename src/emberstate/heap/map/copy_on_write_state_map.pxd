from emberstate.heap.map.before_images cimport MapImage
from emberstate.heap.map.buckets cimport CopyOnWriteBuckets, head_of
from emberstate.heap.map.geometry cimport ABSENT_PAIR, SHARED_ENTRY
from emberstate.heap.map.page_table cimport PageTable
from emberstate.heap.map.snapshots cimport SnapshotPoint
from emberstate.heap.map.entry cimport StateMapEntry
from emberstate.heap.map.value_kind cimport ValueKind

cdef class CopyOnWriteStateMap(CopyOnWriteBuckets):
    cpdef list cell(self, Py_ssize_t number, Py_ssize_t cells)
    cdef list cells_from(self, Py_ssize_t first, Py_ssize_t last, Py_ssize_t cells)
