from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy

from emberstate.state.cells.packing cimport (
    AS_BOOL, AS_DATE, AS_FLOAT, AS_INT, AS_OBJECT, AS_STR_OBJECT, AS_TIMESTAMP, AS_TIMESTAMP_NTZ, MAX_DAY,
    MICROS_OF_DAY, MIN_DAY
)
from emberstate.state.row_columns cimport Cells, big_endian, is_null, raw_at


cdef class FieldTarget:
    cdef readonly int number
    cdef readonly str name
    cdef readonly bytes label
    cdef readonly bint nullable
    cdef readonly object decode
    cdef readonly bytearray data
    cdef readonly bytearray nulls
    cdef readonly list objects
    cdef unsigned char* bytes
    cdef unsigned char* mask
    cdef const char* key
    cdef Py_ssize_t key_size


cdef class RecordUnpacker:
    cdef bytes header
    cdef list fields
    cdef object decode
    cdef bint as_declared
    cdef readonly Py_ssize_t row
    cdef int by_codec(self, Cells cells, Py_ssize_t row, Py_ssize_t place) except -1


cdef inline int point(FieldTarget target) noexcept:
    target.bytes = <unsigned char*>PyByteArray_AS_STRING(target.data)
    target.mask = <unsigned char*>PyByteArray_AS_STRING(target.nulls)
    target.key = <const char*>target.label
    target.key_size = len(target.label)
    return 0


# The functions below read one value at `at`, and return how many bytes it has; 0 if it is none that an encoder writes
# for such a field, or does not end before `end`.


cdef inline Py_ssize_t read_int(const unsigned char* at, const unsigned char* end, long long* number) noexcept:
    cdef unsigned char first = at[0]
    cdef Py_ssize_t size
    cdef unsigned long long bits
    if first < 0x80 or first >= 0xE0:
        number[0] = <signed char>first
        return 1
    if 0xCC <= first <= 0xCF:
        size = <Py_ssize_t>1 << (first - 0xCC)
    elif 0xD0 <= first <= 0xD3:
        size = <Py_ssize_t>1 << (first - 0xD0)
    else:
        return 0
    if end - at < 1 + size:
        return 0
    bits = big_endian(at + 1, size)
    if first == 0xD0:
        number[0] = <signed char>bits
    elif first == 0xD1:
        number[0] = <short>bits
    elif first == 0xD2:
        number[0] = <int>bits
    else:
        if first == 0xCF and bits >> 63:
            return 0
        number[0] = <long long>bits
    return 1 + size


cdef inline Py_ssize_t read_text(
    const unsigned char* at, const unsigned char* end, const unsigned char** text, Py_ssize_t* length
) noexcept:
    cdef Py_ssize_t head
    if (at[0] & 0xE0) == 0xA0:
        head = 1
        length[0] = at[0] & 0x1F
    elif 0xD9 <= at[0] <= 0xDB:
        head = 1 + (<Py_ssize_t>1 << (at[0] - 0xD9))
        if end - at < head:
            return 0
        length[0] = <Py_ssize_t>big_endian(at + 1, head - 1)
    else:
        return 0
    if end - at < head + length[0]:
        return 0
    text[0] = at + head
    return head + length[0]


cdef inline bint read_digits(const unsigned char* at, int count, long long* number) noexcept:
    cdef int i
    number[0] = 0
    for i in range(count):
        if at[i] < 48 or at[i] > 57:
            return False
        number[0] = 10 * number[0] + at[i] - 48
    return True


cdef inline bint read_day(const unsigned char* at, long long* day) noexcept:
    # The reverse of `put_day`; False unless it is a day of the calendar.
    cdef long long year, month, of_month, days, era, year_of_era
    if not (read_digits(at, 4, &year) and read_digits(at + 5, 2, &month) and read_digits(at + 8, 2, &of_month)):
        return False
    if at[4] != c"-" or at[7] != c"-" or year < 1 or month < 1 or month > 12 or of_month < 1:
        return False
    days = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if month == 2:
        days = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if of_month > days:
        return False
    if month <= 2:
        year -= 1
    era = year // 400
    year_of_era = year - 400 * era
    day[0] = (
        era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100
        + (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + of_month - 1 - 719468
    )
    return True


cdef inline Py_ssize_t read_date(const unsigned char* at, const unsigned char* end, long long* day) noexcept:
    return 11 if end - at >= 11 and at[0] == 0xAA and read_day(at + 1, day) else 0


cdef inline Py_ssize_t read_timestamp(const unsigned char* at, const unsigned char* end, long long* micros) noexcept:
    cdef Py_ssize_t left = end - at
    cdef unsigned long long bits
    cdef long long seconds, nanos
    cdef Py_ssize_t size
    if left >= 6 and at[0] == 0xD6 and at[1] == 0xFF:
        seconds = <long long>big_endian(at + 2, 4)
        nanos = 0
        size = 6
    elif left >= 10 and at[0] == 0xD7 and at[1] == 0xFF:
        bits = big_endian(at + 2, 8)
        seconds = <long long>(bits & 0x3FFFFFFFF)
        nanos = <long long>(bits >> 34)
        size = 10
    elif left >= 15 and at[0] == 0xC7 and at[1] == 12 and at[2] == 0xFF:
        nanos = <long long>big_endian(at + 3, 4)
        seconds = <long long>big_endian(at + 7, 8)
        size = 15
    else:
        return 0
    if nanos > 999999999 or nanos % 1000 or seconds < MIN_DAY * 86400LL or seconds >= (MAX_DAY + 1) * 86400LL:
        return 0
    micros[0] = seconds * 1000000 + nanos // 1000
    return size


cdef inline Py_ssize_t read_timestamp_ntz(const unsigned char* at, const unsigned char* end, long long* micros) noexcept:
    cdef long long day, hour, minute, second
    cdef long long micro = 0
    cdef Py_ssize_t size = 27 if at[0] == 0xBA else 20
    if (at[0] != 0xBA and at[0] != 0xB3) or end - at < size or not read_day(at + 1, &day):
        return 0
    if at[11] != c"T" or at[14] != c":" or at[17] != c":":
        return 0
    if not (read_digits(at + 12, 2, &hour) and read_digits(at + 15, 2, &minute) and read_digits(at + 18, 2, &second)):
        return 0
    if hour > 23 or minute > 59 or second > 59:
        return 0
    if size == 27 and not (at[20] == c"." and read_digits(at + 21, 6, &micro)):
        return 0
    micros[0] = day * MICROS_OF_DAY + ((hour * 60 + minute) * 60 + second) * 1000000 + micro
    return size


cdef inline Py_ssize_t read_value(
    FieldTarget target, const unsigned char* at, const unsigned char* end, Py_ssize_t place
) except -1:
    cdef int number = target.number
    cdef long long value = 0
    cdef unsigned long long bits
    cdef const unsigned char* text = NULL
    cdef Py_ssize_t length = 0
    cdef Py_ssize_t size
    if at[0] == 0xC0:
        target.mask[place] = 1
        return 1 if target.nullable else 0
    target.mask[place] = 0
    if number == AS_FLOAT:
        if at[0] != 0xCB or end - at < 9:
            return 0
        bits = big_endian(at + 1, 8)
        memcpy(target.bytes + 8 * place, &bits, 8)
        return 9
    if number == AS_BOOL:
        target.bytes[place] = at[0] == 0xC3
        return 1 if at[0] == 0xC2 or at[0] == 0xC3 else 0
    if number >= AS_STR_OBJECT:
        size = read_text(at, end, &text, &length)
        if size and number == AS_STR_OBJECT:
            target.objects[place] = PyUnicode_DecodeUTF8(<const char*>text, length, NULL)
        elif size:
            target.objects[place] = target.decode((<const char*>at)[:size])
        return size
    if number == AS_INT:
        size = read_int(at, end, &value)
    elif number == AS_DATE:
        size = read_date(at, end, &value)
    elif number == AS_TIMESTAMP:
        size = read_timestamp(at, end, &value)
    else:
        size = read_timestamp_ntz(at, end, &value)
    memcpy(target.bytes + 8 * place, &value, 8)
    return size


cdef inline bint unpack_row(RecordUnpacker unpacker, Cells cells, Py_ssize_t row, Py_ssize_t place) except -1:
    # False unless the cell is what an encoder writes for the declared record; then some fields are set already.
    cdef const unsigned char* at = cells.bytes + cells.starts[row]
    cdef const unsigned char* end = cells.bytes + cells.starts[row + 1]
    cdef bytes header = unpacker.header
    cdef FieldTarget target
    cdef Py_ssize_t size = len(header)
    cdef Py_ssize_t i
    if end - at < size or memcmp(at, <const char*>header, size) != 0:
        return False
    at += size
    for i in range(len(unpacker.fields)):
        target = <FieldTarget>unpacker.fields[i]
        if end - at <= target.key_size or memcmp(at, target.key, target.key_size) != 0:
            return False
        at += target.key_size
        size = read_value(target, at, end, place)
        if size == 0:
            return False
        at += size
    return at == end
