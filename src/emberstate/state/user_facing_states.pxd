from emberstate.state.internal_states cimport (
    InternalAggregatingState, InternalListState, InternalReducingState, InternalValueState,
)

cdef class Handle:
    pass

cdef class UserFacingValueState(Handle):
    cdef InternalValueState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check
    cdef object default
    cdef object copy_default
    cdef bint lends_default

cdef class UserFacingListState(Handle):
    cdef InternalListState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check
    cdef object accept(self, object element)

cdef class UserFacingReducingState(Handle):
    cdef InternalReducingState original
    cdef readonly object descriptor
    cdef object scalar
    cdef object check

cdef class UserFacingAggregatingState(Handle):
    cdef InternalAggregatingState original
    cdef readonly object descriptor
