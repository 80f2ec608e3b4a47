from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from emberstate.runtime.functions.context cimport FunctionContext
from emberstate.runtime.functions.domain_timers cimport DomainTimers
from emberstate.runtime.rows.row_batches cimport new_row
from emberstate.state.key_context cimport KeyContext

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN
        PYGEN_ERROR
        PYGEN_NEXT
    PySendResult PyIter_Send(object generator, object argument, PyObject** result) except? PYGEN_ERROR

cdef inline object take_all(object generator, list rows):
    # Sending, and not iterating: that gives what the generator returns, and needs no exception at its end.
    cdef PyObject* item
    cdef PySendResult state
    cdef object value
    while True:
        item = NULL
        state = PyIter_Send(generator, None, &item)
        value = <object>item
        Py_DECREF(value)
        if state != PYGEN_NEXT:
            return value
        rows.append(value)

cdef class ElementLoop:
    cdef FunctionContext context
    cdef KeyContext key_context
    cdef DomainTimers event
    cdef DomainTimers processing
    cdef public tuple methods
    cdef public list outputs
    cdef public object note
    cdef readonly list of_key
    cdef public long long watermark
    cdef public long long processing_time
    cdef long long out_of_orderness
    cdef long long second_lag
    cdef long long first_seen
    cdef long long second_seen
    cdef bint in_step
    cdef readonly Py_ssize_t position
    cdef public bint user_code
    cdef object advance
    cdef object fire_due
    cdef object late
    cdef const int[:] groups
    cdef const long long[:] times

cpdef collect(object result, list rows)
