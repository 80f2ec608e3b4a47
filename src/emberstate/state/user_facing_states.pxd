from emberstate.state.internal_states cimport (
    InternalAggregatingState, InternalListState, InternalReducingState, InternalValueState,
)

cdef class UserFacingValueState:
    cdef InternalValueState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check
    cdef object default
    cdef object copy_default
    cdef bint lends_default

cdef class UserFacingListState:
    cdef InternalListState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check
    cdef object accept(self, object element)

cdef class UserFacingReducingState:
    cdef InternalReducingState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check

cdef class UserFacingAggregatingState:
    cdef InternalAggregatingState original
    cdef readonly object descriptor
