from emberstate.state.thread_number cimport thread_number

cdef class KeyContext:
    cdef readonly object key
    cdef readonly Py_ssize_t position
    cdef readonly object key_schema
    cdef readonly object key_group_range
    cdef readonly int max_parallelism
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t groups
    cdef readonly object grouper
    cdef readonly object normalise
    cdef readonly unsigned int unchecked
    cdef readonly bint closed
    cdef readonly unsigned long owner
    cdef readonly str owner_name
    cdef readonly long process
    cdef object __weakref__
    cpdef own(self)
    cpdef check_owner(self)
    cpdef check_open(self)
    cpdef check_key(self, str what)
    cpdef set_current_key(self, object key)
    cpdef set_current_key_and_group(self, object key, Py_ssize_t key_group)
    cpdef clear(self)
    cpdef check_still(self, object key)
