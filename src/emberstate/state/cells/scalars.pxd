from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

cdef extern from *:
    bint PyUnicode_IS_ASCII(object text)

# The kinds of scalar, as in scalars.py.
cdef enum:
    BY_CODEC = 0
    AS_INT = 1
    AS_STR = 2
    AS_FLOAT = 3


cdef class ScalarEncoder:
    cdef object by_codec
    cdef int kind
    cpdef bytes encode(self, object value)


cdef inline bytes tagged(unsigned char tag, unsigned long long number, int size):
    # A byte, then a number in big-endian order.
    cdef unsigned char[9] cell
    cdef int i
    cell[0] = tag
    for i in range(size):
        cell[1 + i] = <unsigned char>(number >> (8 * (size - 1 - i)))
    return PyBytes_FromStringAndSize(<const char*>cell, 1 + size)


cdef inline bytes int_cell(object value):
    # None if it does not fit in 64 bits.
    cdef int overflow = 0
    cdef long long number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return None
    if number >= 0:
        if number < 0x80:
            return tagged(<unsigned char>number, 0, 0)
        if number < 0x100:
            return tagged(0xCC, number, 1)
        if number < 0x10000:
            return tagged(0xCD, number, 2)
        return tagged(0xCE, number, 4) if number < 0x100000000 else tagged(0xCF, number, 8)
    if number >= -0x20:
        return tagged(<unsigned char>number, 0, 0)
    if number >= -0x80:
        return tagged(0xD0, number, 1)
    if number >= -0x8000:
        return tagged(0xD1, number, 2)
    return tagged(0xD2, number, 4) if number >= -0x80000000LL else tagged(0xD3, number, 8)


cdef inline bytes str_cell(object value):
    # None if it is not ASCII (the UTF-8 form would stay with it, and take memory) or long.
    cdef Py_ssize_t size, head
    cdef const char* text
    cdef bytes cell
    cdef unsigned char* at
    if not PyUnicode_IS_ASCII(value):
        return None
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if size > 255:
        return None
    head = 1 if size < 32 else 2
    cell = PyBytes_FromStringAndSize(NULL, head + size)
    at = <unsigned char*>PyBytes_AS_STRING(cell)
    if size < 32:
        at[0] = <unsigned char>(0xA0 | size)
    else:
        at[0] = 0xD9
        at[1] = <unsigned char>size
    memcpy(at + head, text, size)
    return cell


cdef inline bytes float_cell(double value):
    cdef unsigned long long bits
    memcpy(&bits, &value, 8)
    return tagged(0xCB, bits, 8)


cdef inline bytes cell_of(int kind, object value):
    # None: the codec encodes or rejects it.
    if kind == AS_INT and type(value) is int:
        return int_cell(value)
    if kind == AS_STR and type(value) is str:
        return str_cell(value)
    if kind == AS_FLOAT and type(value) is float:
        return float_cell(value)
    return None
