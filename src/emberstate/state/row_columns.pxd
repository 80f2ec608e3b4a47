from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy

# The C side of row_columns.py: columns of cells, and readers of one cell.
#
# Constants: the steps of a change, which stand in state/changes.py too, and the kinds of `Decoder`, which stand in
# row_columns.py too. A test compares them.
cdef enum:
    REPLACED = 1
    CLEARED = 2
    PUT = 3
    REMOVED = 4
    APPENDED = 5

cdef enum:
    BY_CODEC = 0
    AS_INT = 1
    AS_TEXT = 2
    AS_FLOAT = 3
    AS_BYTES = 4


cdef class Cells:
    cdef const unsigned char[::1] data
    cdef const int[::1] offsets
    cdef const unsigned char[::1] valid
    cdef readonly bint nulls
    # Pointers to the first elements of the three arrays. Functions use the pointers, since a call copies a typed
    # memoryview, which has about two hundred bytes. `point` sets them.
    cdef const unsigned char* bytes
    cdef const int* starts
    cdef const unsigned char* bits


cdef class Decoder:
    cdef int kind
    cdef readonly object decode
    cdef readonly bint as_declared


cdef inline int point(Cells cells) except -1:
    cells.bytes = &cells.data[0]
    cells.starts = &cells.offsets[0]
    cells.bits = &cells.valid[0]
    return 0


cdef inline bint is_null(Cells cells, Py_ssize_t row) noexcept:
    return cells.nulls and not (cells.bits[row >> 3] >> (row & 7)) & 1


cdef inline bytes raw_at(Cells cells, Py_ssize_t row):
    cdef Py_ssize_t start = cells.starts[row]
    return PyBytes_FromStringAndSize(<const char*>cells.bytes + start, cells.starts[row + 1] - start)


cdef inline int order_of(Cells cells, Py_ssize_t row, Py_ssize_t other) noexcept:
    cdef Py_ssize_t start = cells.starts[row]
    cdef Py_ssize_t other_start = cells.starts[other]
    cdef Py_ssize_t length = cells.starts[row + 1] - start
    cdef Py_ssize_t other_length = cells.starts[other + 1] - other_start
    cdef int order = memcmp(cells.bytes + start, cells.bytes + other_start, min(length, other_length))
    if order != 0:
        return order
    return (length > other_length) - (length < other_length)


cdef inline unsigned long long big_endian(const unsigned char* cell, Py_ssize_t size) noexcept:
    cdef unsigned long long number = 0
    cdef Py_ssize_t i
    for i in range(size):
        number = (number << 8) | cell[i]
    return number


cdef inline object text_of(const unsigned char* cell, Py_ssize_t size):
    if (cell[0] & 0xE0) == 0xA0 and size == 1 + (cell[0] & 0x1F):
        return PyUnicode_DecodeUTF8(<const char*>cell + 1, size - 1, NULL)
    if cell[0] == 0xD9 and size >= 2 and size == 2 + cell[1]:
        return PyUnicode_DecodeUTF8(<const char*>cell + 2, size - 2, NULL)
    if cell[0] == 0xDA and size >= 3 and size == 3 + <Py_ssize_t>big_endian(cell + 1, 2):
        return PyUnicode_DecodeUTF8(<const char*>cell + 3, size - 3, NULL)
    return None


cdef inline object int_of(const unsigned char* cell, Py_ssize_t size):
    cdef unsigned char first = cell[0]
    cdef unsigned long long number
    if size == 1:
        if first < 0x80:
            return <long long>first
        return <long long><signed char>first if first >= 0xE0 else None
    if size > 9:
        return None
    number = big_endian(cell + 1, size - 1)
    if first == 0xCF and size == 9:
        return number if number < <unsigned long long>1 << 63 else None
    if (first == 0xCC and size == 2) or (first == 0xCD and size == 3) or (first == 0xCE and size == 5):
        return number
    if first == 0xD0 and size == 2:
        return <long long><signed char>number
    if first == 0xD1 and size == 3:
        return <long long><short>number
    if first == 0xD2 and size == 5:
        return <long long><int>number
    return <long long>number if first == 0xD3 and size == 9 else None


cdef inline object float_of(const unsigned char* cell, Py_ssize_t size):
    cdef unsigned long long number
    cdef double real
    if cell[0] != 0xCB or size != 9:
        return None
    number = big_endian(cell + 1, 8)
    memcpy(&real, &number, 8)
    return real


cdef inline object bytes_of(const unsigned char* cell, Py_ssize_t size):
    if cell[0] == 0xC4 and size >= 2 and size == 2 + cell[1]:
        return PyBytes_FromStringAndSize(<const char*>cell + 2, size - 2)
    if cell[0] == 0xC5 and size >= 3 and size == 3 + <Py_ssize_t>big_endian(cell + 1, 2):
        return PyBytes_FromStringAndSize(<const char*>cell + 3, size - 3)
    return None


cdef inline object value_at(Decoder decoder, Cells cells, Py_ssize_t row):
    # Reads a scalar from the MessagePack forms that the encoder writes. The codec decodes, or rejects, all other cells.
    cdef const unsigned char* cell = cells.bytes + cells.starts[row]
    cdef Py_ssize_t size = cells.starts[row + 1] - cells.starts[row]
    cdef object value = None
    if size > 0 and decoder.kind != BY_CODEC:
        if decoder.kind == AS_INT:
            value = int_of(cell, size)
        elif decoder.kind == AS_TEXT:
            value = text_of(cell, size)
        elif decoder.kind == AS_FLOAT:
            value = float_of(cell, size)
        else:
            value = bytes_of(cell, size)
        if value is not None:
            return value
    return decoder.decode(raw_at(cells, row))


cdef class RowColumns:
    cdef readonly Cells keys
    cdef readonly Cells namespaces
    cdef readonly Cells user_keys
    cdef readonly Cells values
    cdef const unsigned short[::1] key_groups
    cdef const unsigned short[::1] states
    cdef const unsigned char[::1] ops
    cdef const long long[::1] stamps
    cdef const unsigned char[::1] stamp_valid
    cdef readonly bint stamp_nulls


cdef inline bint has_stamp(RowColumns columns, Py_ssize_t row) noexcept:
    return not columns.stamp_nulls or (columns.stamp_valid[row >> 3] >> (row & 7)) & 1
