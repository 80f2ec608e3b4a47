from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy


# A row that is being sorted: some bytes of its key, as a number that compares as they do.
cdef struct Sorted:
    unsigned long long prefix
    long long row


# A large binary column.
cdef struct Cells:
    const unsigned char* bytes
    const long long* starts
    const unsigned char* bits


cdef struct Columns:
    Cells keys
    Cells namespaces
    Cells user_keys
    const unsigned short* groups
    const unsigned short* states
    const unsigned int* steps


cdef class RowOrder:
    cdef list views
    cdef Columns columns


cdef unsigned char* start_of(const unsigned char[::1] view) noexcept


cdef inline int point_cells(Cells* cells, list views, Py_ssize_t first) except -1:
    cells.bits = NULL if views[first] is None else start_of(views[first])
    cells.starts = <const long long*>start_of(views[first + 1])
    cells.bytes = start_of(views[first + 2])
    return 0


cdef inline int point(RowOrder order) except -1:
    cdef list views = order.views
    point_cells(&order.columns.keys, views, 0)
    point_cells(&order.columns.namespaces, views, 3)
    point_cells(&order.columns.user_keys, views, 6)
    order.columns.groups = <const unsigned short*>start_of(views[9])
    order.columns.states = <const unsigned short*>start_of(views[10])
    order.columns.steps = <const unsigned int*>start_of(views[11])
    return 0


cdef inline int compare_cells(const Cells* cells, long long one, long long other) noexcept nogil:
    cdef Py_ssize_t length = cells.starts[one + 1] - cells.starts[one]
    cdef Py_ssize_t other_length = cells.starts[other + 1] - cells.starts[other]
    cdef int order = memcmp(
        cells.bytes + cells.starts[one], cells.bytes + cells.starts[other],
        length if length < other_length else other_length,
    )
    if order != 0:
        return order
    return (length > other_length) - (length < other_length)


cdef inline bint is_null(const Cells* cells, long long row) noexcept nogil:
    return cells.bits != NULL and not (cells.bits[row >> 3] >> (row & 7)) & 1


cdef inline bint is_after(const Columns* order, Sorted* one, Sorted* other) noexcept nogil:
    # Whether a row of one state and key group belongs behind another; rows that are equal stay as they are.
    cdef int compared
    if one.prefix != other.prefix:
        return one.prefix > other.prefix
    compared = compare_cells(&order.keys, one.row, other.row)
    if compared == 0:
        compared = compare_cells(&order.namespaces, one.row, other.row)
    if compared == 0:
        compared = (order.steps[one.row] > order.steps[other.row]) - (order.steps[one.row] < order.steps[other.row])
    if compared == 0:
        compared = is_null(&order.user_keys, one.row) - is_null(&order.user_keys, other.row)
    if compared == 0 and not is_null(&order.user_keys, one.row):
        compared = compare_cells(&order.user_keys, one.row, other.row)
    return compared > 0


cdef inline Py_ssize_t shared_prefix(const Columns* order, const long long* rows, Py_ssize_t count) noexcept nogil:
    # How many bytes all keys of the rows begin with.
    cdef const Cells* keys = &order.keys
    cdef const unsigned char* first = keys.bytes + keys.starts[rows[0]]
    cdef const unsigned char* cell
    cdef Py_ssize_t shared = keys.starts[rows[0] + 1] - keys.starts[rows[0]]
    cdef Py_ssize_t length, same, i
    for i in range(1, count):
        cell = keys.bytes + keys.starts[rows[i]]
        length = keys.starts[rows[i] + 1] - keys.starts[rows[i]]
        if length < shared:
            shared = length
        if memcmp(first, cell, shared) != 0:
            same = 0
            while first[same] == cell[same]:
                same += 1
            shared = same
    return shared


cdef inline unsigned long long prefix_of(const Cells* keys, long long row, Py_ssize_t skipped) noexcept nogil:
    # The 8 bytes after those that all keys share; zeros behind the end, which full comparison tells from bytes.
    cdef const unsigned char* cell = keys.bytes + keys.starts[row] + skipped
    cdef Py_ssize_t length = keys.starts[row + 1] - keys.starts[row] - skipped
    cdef unsigned long long prefix = 0
    cdef Py_ssize_t i
    if length >= 8:
        for i in range(8):
            prefix = (prefix << 8) | cell[i]
        return prefix
    for i in range(length):
        prefix = (prefix << 8) | cell[i]
    return prefix << (8 * (8 - length)) if length else 0


cdef inline void insert_sort(const Columns* order, Sorted* rows, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i, j
    cdef Sorted moved
    for i in range(1, count):
        moved = rows[i]
        j = i
        while j > 0 and is_after(order, &rows[j - 1], &moved):
            rows[j] = rows[j - 1]
            j -= 1
        rows[j] = moved


cdef inline void merge_sort(const Columns* order, Sorted* rows, Sorted* spare, Py_ssize_t count) noexcept nogil:
    # Bottom up, from pieces sorted by insertion; the result is in `rows`.
    cdef Py_ssize_t width = 12
    cdef Py_ssize_t start, middle, stop, left, right, at
    cdef Sorted* source = rows
    cdef Sorted* target = spare
    cdef Sorted* swapped
    start = 0
    while start < count:
        insert_sort(order, rows + start, width if count - start > width else count - start)
        start += width
    while width < count:
        start = 0
        while start < count:
            middle = start + width if start + width < count else count
            stop = middle + width if middle + width < count else count
            left, right, at = start, middle, start
            while left < middle and right < stop:
                if is_after(order, &source[left], &source[right]):
                    target[at] = source[right]
                    right += 1
                else:
                    target[at] = source[left]
                    left += 1
                at += 1
            if left < middle:
                memcpy(target + at, source + left, (middle - left) * sizeof(Sorted))
            else:
                memcpy(target + at, source + right, (stop - right) * sizeof(Sorted))
            start = stop
        swapped = source
        source = target
        target = swapped
        width *= 2
    if source != rows:
        memcpy(rows, source, count * sizeof(Sorted))


cdef inline void count_sort(
    const unsigned short* values, long long* rows, long long* spare, Py_ssize_t* places, Py_ssize_t count
) noexcept nogil:
    # Stable. There is a place for each of the 65,536 values.
    cdef Py_ssize_t i, place, held
    for i in range(65536):
        places[i] = 0
    for i in range(count):
        places[values[i]] += 1
    place = 0
    for i in range(65536):
        held = places[i]
        places[i] = place
        place += held
    for i in range(count):
        held = values[rows[i]]
        spare[places[held]] = rows[i]
        places[held] += 1
    memcpy(rows, spare, count * sizeof(long long))


cdef inline bint ascends(const unsigned short* values, const unsigned short* lower, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(1, count):
        if values[i] < values[i - 1] or (values[i] == values[i - 1] and lower[i] < lower[i - 1]):
            return False
    return True


cdef inline bint is_constant(const unsigned short* values, Py_ssize_t count) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(1, count):
        if values[i] != values[0]:
            return False
    return True


cdef inline int sort_rows(const Columns* order, long long* rows, Py_ssize_t count) except -1:
    # First by group and state, by counting; then the rows of each by their bytes, which holds no lock.
    cdef Sorted* pieces = <Sorted*>malloc(2 * (count + 1) * sizeof(Sorted))
    cdef Py_ssize_t start, stop, skipped, i
    cdef const Cells* keys = &order.keys
    cdef Py_ssize_t* places = <Py_ssize_t*>malloc(65536 * sizeof(Py_ssize_t))
    if pieces == NULL or places == NULL:
        free(pieces)
        free(places)
        raise MemoryError()
    with nogil:
        for i in range(count):
            rows[i] = i
        if not ascends(order.groups, order.states, count):
            if not is_constant(order.states, count):
                count_sort(order.states, rows, <long long*>pieces, places, count)
            if not is_constant(order.groups, count):
                count_sort(order.groups, rows, <long long*>pieces, places, count)
        start = 0
        while start < count:
            stop = start + 1
            while (
                stop < count
                and order.groups[rows[stop]] == order.groups[rows[start]]
                and order.states[rows[stop]] == order.states[rows[start]]
            ):
                stop += 1
            if stop - start > 1:
                skipped = shared_prefix(order, rows + start, stop - start)
                for i in range(start, stop):
                    pieces[i - start].prefix = prefix_of(keys, rows[i], skipped)
                    pieces[i - start].row = rows[i]
                merge_sort(order, pieces, pieces + (stop - start), stop - start)
                for i in range(start, stop):
                    rows[i] = pieces[i - start].row
            start = stop
    free(pieces)
    free(places)
    return 0


cdef inline int fill_order(RowOrder order, bytearray rows, Py_ssize_t count) except -1:
    return sort_rows(&order.columns, <long long*>start_of(rows), count)
