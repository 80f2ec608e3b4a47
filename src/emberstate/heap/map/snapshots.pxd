cdef class SnapshotPoint:
    cdef readonly SnapshotRegistry registry
    cdef readonly unsigned int version
    cdef readonly list images
    cdef readonly dict frozen
    cdef readonly bint released
    cpdef release(self)

cdef class SnapshotRegistry:
    cdef readonly unsigned int version
    cdef readonly unsigned int required
    cdef readonly unsigned long long epoch
    cdef readonly list live
    cdef readonly object lock
    cdef readonly list lenders
    cdef readonly list synchronous
    cdef readonly list listeners
    cdef readonly set orphans
    cdef readonly object owner
    cdef readonly Py_ssize_t busy
    cpdef bint same(self, object one, object other) except -1
    cpdef Py_hash_t hash_of(self, object value) except? -1
    cpdef refuse_change(self)
    cpdef SnapshotPoint snapshot(self)
    cpdef release(self, SnapshotPoint snapshot)
    cpdef seal(self)
    cpdef touch(self)
    cpdef bint branched(self)
