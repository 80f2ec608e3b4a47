cdef class ValueKind:
    cdef readonly bint immutable
    cdef readonly bint lends
    cdef readonly bint nested
    cpdef object copy(self, object state)
    cpdef object seal(self, object state, object old)
    cpdef object view(self, object state, object snapshot)
    cpdef tuple delta(self, object old, object new, object snapshot)

cdef class MutableKind(ValueKind):
    cdef readonly object _copy
    cdef readonly object _same
