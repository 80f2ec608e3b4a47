from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

cdef extern from *:
    bint PyUnicode_IS_ASCII(object text)

# The kinds of column, as in packing.py; a test holds the two files to each other.
cdef enum:
    AS_INT = 1
    AS_FLOAT = 2
    AS_BOOL = 3
    AS_DATE = 4
    AS_TIMESTAMP = 5
    AS_TIMESTAMP_NTZ = 6
    AS_TEXT = 7
    AS_BYTES = 8
    AS_STR_OBJECT = 9
    AS_OBJECT = 10

cdef enum:
    MIN_DAY = -719162  # 0001-01-01
    MAX_DAY = 2932896  # 9999-12-31

cdef extern from *:
    """
    #define MICROS_OF_DAY 86400000000LL
    """
    const long long MICROS_OF_DAY


cdef class Column:
    cdef readonly int number
    cdef readonly bytes label
    cdef readonly object data
    cdef readonly object offsets
    cdef readonly object nulls
    cdef readonly list objects
    cdef readonly object encode
    # Where the buffers begin; the objects above keep them alive.
    cdef const unsigned char* bytes
    cdef const long long* starts
    cdef const unsigned char* mask
    cdef const char* name
    cdef Py_ssize_t name_size


cdef class Packer:
    cdef bytearray data
    cdef bytearray offsets
    cdef unsigned char* bytes
    cdef long long* ends
    cdef Py_ssize_t size
    cdef Py_ssize_t room
    cdef Py_ssize_t row
    cdef int grow(self, Py_ssize_t more) except -1


cdef unsigned char* _start(const unsigned char[::1] view) noexcept
cdef int refuse_time(long long number, bint days) except -1


cdef inline int point(Column column) except -1:
    column.name = <const char*>column.label
    column.name_size = len(column.label)
    if column.data is not None:
        column.bytes = _start(column.data)
    if column.offsets is not None:
        column.starts = <const long long*>_start(column.offsets)
    column.mask = NULL if column.nulls is None else _start(column.nulls)
    return 0


cdef inline int resize(Packer packer) except -1:
    PyByteArray_Resize(packer.data, packer.room)
    packer.bytes = <unsigned char*>PyByteArray_AS_STRING(packer.data)
    return 0


cdef inline int begin(Packer packer, Py_ssize_t count) except -1:
    packer.ends = <long long*>PyByteArray_AS_STRING(packer.offsets)
    packer.room = 32 * count  # a guess: to grow is to copy
    return resize(packer)


cdef inline int need(Packer packer, Py_ssize_t more) except -1:
    if packer.size + more > packer.room:
        packer.grow(more)
    return 0


cdef inline void put_number(unsigned char* at, unsigned long long number, int size) noexcept:
    # Big-endian.
    cdef int i
    for i in range(size):
        at[i] = <unsigned char>(number >> (8 * (size - 1 - i)))


cdef inline void put_tagged(Packer packer, unsigned char tag, unsigned long long number, int size) noexcept:
    packer.bytes[packer.size] = tag
    put_number(packer.bytes + packer.size + 1, number, size)
    packer.size += 1 + size


cdef inline void put_byte(Packer packer, unsigned char byte) noexcept:
    packer.bytes[packer.size] = byte
    packer.size += 1


cdef inline int put_raw(Packer packer, const char* data, Py_ssize_t size) except -1:
    need(packer, size)
    memcpy(packer.bytes + packer.size, data, size)
    packer.size += size
    return 0


cdef inline int put_int(Packer packer, long long number) except -1:
    need(packer, 9)
    if number >= 0:
        if number < 0x80:
            put_byte(packer, <unsigned char>number)
        elif number < 0x100:
            put_tagged(packer, 0xCC, number, 1)
        elif number < 0x10000:
            put_tagged(packer, 0xCD, number, 2)
        elif number < 0x100000000:
            put_tagged(packer, 0xCE, number, 4)
        else:
            put_tagged(packer, 0xCF, number, 8)
    elif number >= -0x20:
        put_byte(packer, <unsigned char>number)
    elif number >= -0x80:
        put_tagged(packer, 0xD0, number, 1)
    elif number >= -0x8000:
        put_tagged(packer, 0xD1, number, 2)
    elif number >= -0x80000000LL:
        put_tagged(packer, 0xD2, number, 4)
    else:
        put_tagged(packer, 0xD3, number, 8)
    return 0


cdef inline int put_text(Packer packer, const char* text, Py_ssize_t size) except -1:
    need(packer, size + 5)
    if size < 32:
        put_byte(packer, <unsigned char>(0xA0 | size))
    elif size < 0x100:
        put_tagged(packer, 0xD9, size, 1)
    elif size < 0x10000:
        put_tagged(packer, 0xDA, size, 2)
    else:
        put_tagged(packer, 0xDB, size, 4)
    return put_raw(packer, text, size)


cdef inline int put_bytes(Packer packer, const char* data, Py_ssize_t size) except -1:
    need(packer, size + 5)
    if size < 0x100:
        put_tagged(packer, 0xC4, size, 1)
    elif size < 0x10000:
        put_tagged(packer, 0xC5, size, 2)
    else:
        put_tagged(packer, 0xC6, size, 4)
    return put_raw(packer, data, size)


cdef inline void put_digits(unsigned char* at, long long number, int count) noexcept:
    cdef int i
    for i in range(count - 1, -1, -1):
        at[i] = <unsigned char>(48 + number % 10)
        number //= 10


cdef inline void put_day(unsigned char* at, long long day) noexcept:
    # The proleptic Gregorian calendar, in eras of 400 years that begin on 1 March (H. Hinnant, "chrono-Compatible
    # Low-Level Date Algorithms"); the day is at least MIN_DAY, so nothing is negative.
    cdef long long shifted = day + 719468
    cdef long long era = shifted // 146097
    cdef long long of_era = shifted - era * 146097
    cdef long long year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef long long of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef long long from_march = (5 * of_year + 2) // 153
    cdef long long month = from_march + 3 if from_march < 10 else from_march - 9
    put_digits(at, year_of_era + era * 400 + (1 if month <= 2 else 0), 4)
    at[4] = c"-"
    put_digits(at + 5, month, 2)
    at[7] = c"-"
    put_digits(at + 8, of_year - (153 * from_march + 2) // 5 + 1, 2)


cdef inline int put_date(Packer packer, long long day) except -1:
    if day < MIN_DAY or day > MAX_DAY:
        refuse_time(day, True)
    need(packer, 11)
    put_byte(packer, 0xAA)
    put_day(packer.bytes + packer.size, day)
    packer.size += 10
    return 0


cdef inline int put_timestamp(Packer packer, long long micros) except -1:
    cdef long long seconds = micros // 1000000
    cdef long long nanos
    if micros < 0 and seconds * 1000000 != micros:
        seconds -= 1  # C divides towards 0
    nanos = (micros - seconds * 1000000) * 1000
    if micros < MIN_DAY * MICROS_OF_DAY or micros >= (MAX_DAY + 1) * MICROS_OF_DAY:
        refuse_time(micros, False)
    need(packer, 15)
    if seconds >> 34 == 0:
        if nanos == 0 and seconds < 0x100000000:
            put_tagged(packer, 0xD6, 0xFF, 1)
            put_number(packer.bytes + packer.size, seconds, 4)
            packer.size += 4
        else:
            put_tagged(packer, 0xD7, 0xFF, 1)
            put_number(packer.bytes + packer.size, <unsigned long long>nanos << 34 | seconds, 8)
            packer.size += 8
    else:
        put_tagged(packer, 0xC7, 0x0CFF, 2)
        put_number(packer.bytes + packer.size, nanos, 4)
        put_number(packer.bytes + packer.size + 4, seconds, 8)
        packer.size += 12
    return 0


cdef inline int put_timestamp_ntz(Packer packer, long long micros) except -1:
    cdef long long day = micros // MICROS_OF_DAY
    cdef long long rest
    cdef unsigned char* at
    if micros < 0 and day * MICROS_OF_DAY != micros:
        day -= 1
    rest = micros - day * MICROS_OF_DAY
    if day < MIN_DAY or day > MAX_DAY:
        refuse_time(micros, False)
    need(packer, 27)
    put_byte(packer, 0xBA if rest % 1000000 else 0xB3)
    at = packer.bytes + packer.size
    put_day(at, day)
    at[10] = c"T"
    put_digits(at + 11, rest // 3600000000LL, 2)
    at[13] = c":"
    put_digits(at + 14, rest // 60000000 % 60, 2)
    at[16] = c":"
    put_digits(at + 17, rest // 1000000 % 60, 2)
    packer.size += 19
    if rest % 1000000:
        at[19] = c"."
        put_digits(at + 20, rest % 1000000, 6)
        packer.size += 7
    return 0


cdef inline int put_object(Packer packer, Column column, Py_ssize_t row) except -1:
    cdef object value = column.objects[row]
    cdef bytes cell
    cdef const char* text
    cdef Py_ssize_t size
    if value is None:
        need(packer, 1)
        put_byte(packer, 0xC0)
        return 0
    # The UTF-8 form of other texts would stay with them, and take memory.
    if column.number == AS_STR_OBJECT and type(value) is str and PyUnicode_IS_ASCII(value):
        text = PyUnicode_AsUTF8AndSize(value, &size)
        return put_text(packer, text, size)
    cell = column.encode(value)
    return put_raw(packer, <const char*>cell, len(cell))


cdef inline int put_value(Packer packer, Column column, Py_ssize_t row) except -1:
    cdef int number = column.number
    cdef unsigned long long bits
    if number >= AS_STR_OBJECT:
        return put_object(packer, column, row)
    if column.mask != NULL and column.mask[row]:
        need(packer, 1)
        put_byte(packer, 0xC0)
        return 0
    if number == AS_INT:
        return put_int(packer, (<const long long*>column.bytes)[row])
    if number == AS_TEXT:
        return put_text(
            packer, <const char*>column.bytes + column.starts[row], column.starts[row + 1] - column.starts[row]
        )
    if number == AS_FLOAT:
        need(packer, 9)
        memcpy(&bits, column.bytes + 8 * row, 8)
        put_tagged(packer, 0xCB, bits, 8)
        return 0
    if number == AS_BOOL:
        need(packer, 1)
        put_byte(packer, 0xC3 if column.bytes[row] else 0xC2)
        return 0
    if number == AS_DATE:
        return put_date(packer, (<const long long*>column.bytes)[row])
    if number == AS_TIMESTAMP:
        return put_timestamp(packer, (<const long long*>column.bytes)[row])
    if number == AS_TIMESTAMP_NTZ:
        return put_timestamp_ntz(packer, (<const long long*>column.bytes)[row])
    return put_bytes(
        packer, <const char*>column.bytes + column.starts[row], column.starts[row + 1] - column.starts[row]
    )


cdef inline int put_part(Packer packer, Column column, Py_ssize_t row) except -1:
    if column.name_size:
        put_raw(packer, column.name, column.name_size)
    return put_value(packer, column, row)


cdef inline int put_header(Packer packer, bytes header) except -1:
    return put_raw(packer, <const char*>header, len(header))


cdef inline int end_row(Packer packer) noexcept:
    packer.row += 1
    packer.ends[packer.row] = packer.size
    return 0
