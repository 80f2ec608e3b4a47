from emberstate.state.key_context cimport KeyContext

cdef class FunctionContext:
    cdef readonly str operator_name
    cdef readonly object timers
    cdef long long time
    cdef bint timed
    cdef readonly long long event_now
    cdef readonly object processing_now
    cdef readonly dict counters
    cdef object emit
    cdef readonly object backend
    cdef KeyContext key_context
    cdef dict handles
    cdef bint event_ttl
    cdef object broadcast
    cdef public bint hands_batches
    cdef public long long lag
    cpdef move_watermark(self, long long micros)
