from emberstate.heap.map.geometry cimport PAGE_BUCKETS, PAGE_SHIFT
from emberstate.heap.map.gc_sight cimport untrack

cdef class PageTable:
    cdef readonly list pages
    cdef readonly Py_ssize_t capacity
    cdef readonly unsigned int version
    cdef readonly Py_ssize_t reached
    cdef list make_page(self, Py_ssize_t number)
