cimport cython

@cython.final
cdef class PairAccess:
    cdef object _get
    cdef object _put
    cdef object _delete
    cdef object _keeper
    cdef public Py_ssize_t generation
    cdef public object sequence
    cdef public set touched
    cdef public Py_ssize_t touched_bytes
    cdef public Py_ssize_t touched_limit
    cdef public bint unsettled
    cdef public long long writes
    cpdef object get(self, bytes raw)
    cpdef object put(self, bytes raw, bytes value)
    cpdef object delete(self, bytes raw)
    cpdef object append(self, bytes prefix, bytes value)
    cpdef object touch(self, bytes raw)
