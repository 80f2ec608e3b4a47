from emberstate.state.cells.scalars cimport ScalarEncoder

cdef enum:
    REPLACED = 1
    CLEARED = 2
    PUT = 3
    APPENDED = 5

cdef class EntryEncoder:
    cdef object binding
    cdef ScalarEncoder encode_key
    cdef object encode_namespace
    cdef ScalarEncoder encode_user_key
    cdef ScalarEncoder encode_value
    cdef object rows
    cdef bint stamped
    cdef object number
    cdef object namespace
    cdef bytes namespace_bytes
    cdef Py_ssize_t held
    cdef list key_groups
    cdef list keys
    cdef list namespaces
    cdef list ops
    cdef list user_keys
    cdef list values
    cdef list stamps
    cdef list steps
    cdef clear(self)
    cpdef flush(self)
    cpdef add_steps(self, object key_group, object key, object namespace, object steps)
    cdef add_row(
        self, object key_group, bytes key_bytes, int op, object user_key, object value, bint has_value, Py_ssize_t step
    )
