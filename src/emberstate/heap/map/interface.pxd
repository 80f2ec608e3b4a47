from emberstate.heap.map.snapshots cimport SnapshotRegistry
from emberstate.heap.map.value_kind cimport ValueKind

cdef class StateMap:
    cdef readonly SnapshotRegistry registry
    cdef readonly ValueKind kind
    cpdef object get(self, object key, object namespace)
    cpdef object peek(self, object key, object namespace)
    cpdef bint contains_key(self, object key, object namespace) except -1
    cpdef object put(self, object key, object namespace, object state)
    cpdef object put_and_get_old(self, object key, object namespace, object state)
    cpdef bint remove(self, object key, object namespace) except -1
    cpdef object remove_and_get_old(self, object key, object namespace)
    cpdef object transform(self, object key, object namespace, object argument, object function)
    cpdef list changes(self, object snapshot)
