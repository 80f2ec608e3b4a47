cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)

cdef inline int untrack(object container) except -1:
    PyObject_GC_UnTrack(<void*>container)
    return 0
