from emberstate.heap.map.geometry cimport SHARD_SHIFT
from emberstate.heap.map.page_table cimport PageTable
from emberstate.heap.map.entry cimport StateMapEntry

cdef class BeforeImages:
    cdef readonly PageTable table
    cdef readonly list shards
    cdef int save(self, Py_ssize_t bucket, StateMapEntry head) except -1

cdef class MapImage:
    cdef readonly object map
    cdef readonly unsigned int version
    cdef readonly PageTable primary
    cdef readonly PageTable rehash
    cdef readonly Py_ssize_t rehash_index
    cdef readonly Py_ssize_t size
    cdef readonly list sides
    cdef readonly list log
    cdef readonly Py_ssize_t distinct
    cdef readonly bint repeats
    cdef readonly MapImage older
    cpdef BeforeImages side_of(self, PageTable table)
