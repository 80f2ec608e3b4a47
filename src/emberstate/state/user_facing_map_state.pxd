from emberstate.state.internal_states cimport InternalMapState

cdef class UserFacingMapState:
    cdef InternalMapState original
    cdef readonly object descriptor
    cdef object key_scalar
    cdef object value_scalar
    cdef object check_key
    cdef object check_value
    cdef int accept_key(self, object key) except -1
    cdef object accept_value(self, object value)
