from emberstate.heap.map.copy_on_write_state_map cimport CopyOnWriteStateMap
from emberstate.heap.states.list_value cimport AppendList, ListKind
from emberstate.heap.states.state_table cimport StateTable
from emberstate.heap.map.value_kind cimport ValueKind
from emberstate.state.internal_states cimport Folding, InternalListState, InternalValueState, StoredFoldingState

cdef class HeapValueState(InternalValueState):
    cdef readonly StateTable table
    cdef readonly object namespace
    cdef object defaults

cdef class HeapListState(InternalListState):
    cdef readonly StateTable table
    cdef readonly object namespace

cdef class HeapFoldingState(StoredFoldingState):
    cdef readonly StateTable table
    cdef readonly object namespace
