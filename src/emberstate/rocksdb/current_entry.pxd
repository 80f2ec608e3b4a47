from emberstate.state.key_context cimport KeyContext

cdef class CurrentKey:
    cdef readonly KeyContext context
    cdef readonly object encode
    cdef list groups
    cdef object key
    cdef bytes part
    cpdef bytes current(self, str what)

cdef class CurrentEntry:
    cdef KeyContext context
    cdef CurrentKey keys
    cdef str name
    cdef bytes table
    cdef bytes namespace
    cdef object key
    cdef bytes prefix
    cpdef bytes current(self)
