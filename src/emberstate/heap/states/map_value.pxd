from emberstate.heap.map.copy_on_write_state_map cimport CopyOnWriteStateMap
from emberstate.heap.map.snapshots cimport SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind cimport ValueKind

cdef Py_ssize_t position_in(tuple small, object user_key) except -2
cpdef tuple small_put(tuple small, Py_ssize_t position, object user_key, object user_value)
cpdef tuple small_remove(tuple small, Py_ssize_t position)

cdef class MapKind(ValueKind):
    cdef readonly ValueKind value_kind
    cdef readonly Py_ssize_t small_limit
    cdef CopyOnWriteStateMap large_from(self, tuple small, SnapshotRegistry registry)
