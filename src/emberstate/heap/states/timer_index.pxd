from cpython cimport array as c_array

# The C forms of bisect_left and bisect_right, for times: no number becomes a Python object on the way.
cdef inline Py_ssize_t left_of(c_array.array times, long long time, Py_ssize_t low = 0):
    cdef Py_ssize_t high = len(times)
    cdef Py_ssize_t middle
    cdef long long* numbers = times.data.as_longlongs
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < time:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline Py_ssize_t right_of(c_array.array times, long long time, Py_ssize_t low = 0):
    cdef Py_ssize_t high = len(times)
    cdef Py_ssize_t middle
    cdef long long* numbers = times.data.as_longlongs
    while low < high:
        middle = (low + high) // 2
        if time < numbers[middle]:
            high = middle
        else:
            low = middle + 1
    return low

cdef class TimerIndex:
    cdef readonly list _blocks
    cdef readonly list _times
    cdef readonly c_array.array _lasts
    cdef readonly Py_ssize_t _size
    cpdef tuple first(self)
    cpdef tuple pop_first(self)
    cpdef object add(self, tuple timer)
    cpdef object remove(self, tuple timer)
    cdef Py_ssize_t _block_of(self, tuple timer) except -1
    cdef Py_ssize_t _position_in(self, list block, c_array.array times, tuple timer) except -1
    cdef object _delete(self, Py_ssize_t number, Py_ssize_t position)
    cdef object _cut(self, Py_ssize_t number)
