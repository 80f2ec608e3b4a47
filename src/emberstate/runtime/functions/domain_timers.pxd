cdef class DomainTimers:
    cdef readonly object domain
    cdef readonly long long next_time
    cdef readonly object queue
    cdef readonly object refusal
