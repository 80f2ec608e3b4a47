from emberstate.heap.map.snapshots cimport SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.interface cimport StateMap
from emberstate.heap.map.value_kind cimport ValueKind
from emberstate.state.key_context cimport KeyContext
from emberstate.state.thread_number cimport thread_number

cdef class StateTable:
    cdef readonly str name
    cdef readonly KeyContext context
    cdef readonly SnapshotRegistry registry
    cdef readonly ValueKind kind
    cdef readonly list maps
    cpdef StateMap make_map(self)
    cdef StateMap current(self)
    cdef StateMap current_or_new(self)
    cpdef object get(self, object namespace)
    cpdef object peek(self, object namespace)
    cpdef bint contains_key(self, object namespace) except -1
    cpdef object put(self, object namespace, object state)
    cpdef object put_and_get_old(self, object namespace, object state)
    cpdef bint remove(self, object namespace) except -1
    cpdef object remove_and_get_old(self, object namespace)
    cpdef object transform(self, object namespace, object argument, object function)

cdef class CopyOnWriteStateTable(StateTable):
    pass

cdef class NestedMapsStateTable(StateTable):
    pass
