from emberstate.heap.map.copy_on_write_state_map cimport CopyOnWriteStateMap
from emberstate.heap.states.map_value cimport MapKind, position_in, small_put, small_remove
from emberstate.heap.map.snapshots cimport SnapshotRegistry
from emberstate.heap.states.state_table cimport StateTable
from emberstate.state.internal_states cimport InternalMapState

cdef class HeapMapState(InternalMapState):
    cdef readonly StateTable table
    cdef readonly object namespace
    cdef readonly MapKind kind
    cdef Py_ssize_t position_of(self, tuple small, object user_key) except -2
    cdef CopyOnWriteStateMap large_for_change(self)
