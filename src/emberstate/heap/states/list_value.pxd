from emberstate.heap.map.gc_sight cimport untrack
from emberstate.heap.map.snapshots cimport SnapshotRegistry
from emberstate.heap.map.value_kind cimport ValueKind

cdef class AppendList:
    cdef readonly list items
    cdef readonly Py_ssize_t length
    cdef int append(self, object element, SnapshotRegistry registry) except -1

cdef AppendList new_append_list(list items, Py_ssize_t length)

cdef class ListKind(ValueKind):
    cdef readonly object _copy_element
