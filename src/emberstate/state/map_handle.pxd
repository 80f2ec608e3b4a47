from emberstate.state.handles cimport Handle
from emberstate.state.internal_states cimport InternalMapState

cdef class UserFacingMapState(Handle):
    cdef InternalMapState original
    cdef object key_scalar
    cdef object check_key
    cdef int accept_key(self, object key) except -1
    cdef object accept_value(self, object value)
