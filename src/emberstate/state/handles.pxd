from emberstate.state.internal_states cimport InternalFoldingState, InternalListState, InternalValueState

cdef class Handle:
    cdef readonly object descriptor
    cdef object scalar
    cdef object check
    cdef object accept(self, object value)

cdef class ContentHandle(Handle):
    pass

cdef class UserFacingValueState(ContentHandle):
    cdef InternalValueState original
    cdef object default
    cdef object copy_default
    cdef bint lends_default

cdef class UserFacingListState(ContentHandle):
    cdef InternalListState original
    cdef object accept_element(self, object element)

cdef class UserFacingFoldingState(ContentHandle):
    cdef InternalFoldingState original

cdef class UserFacingReducingState(UserFacingFoldingState):
    pass

cdef class UserFacingAggregatingState(UserFacingFoldingState):
    pass
