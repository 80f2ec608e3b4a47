from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
cimport cpython.datetime as c_datetime

cdef extern from "Python.h":
    ctypedef PyObject* (*allocfunc)(PyTypeObject*, Py_ssize_t)
    PyObject* PyList_GET_ITEM(object, Py_ssize_t)
    PyObject* PyTuple_GET_ITEM(object, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(object)
    bint PyTuple_Check(object)
    bint PyType_Check(object)
    char* PyBytes_AS_STRING(object)
    object PyObject_Vectorcall(object, PyObject**, size_t, PyObject*)

cdef extern from *:
    """
    static PyObject* emberstate_alloc(PyObject* type, Py_ssize_t items) {
        return ((PyTypeObject*)type)->tp_alloc((PyTypeObject*)type, items);
    }
    #include <structmember.h>
    static Py_ssize_t emberstate_offset(PyObject* slot) {
        PyMemberDef* member;
        if (Py_TYPE(slot) != &PyMemberDescr_Type) return -1;
        member = ((PyMemberDescrObject*)slot)->d_member;
        return member->type == T_OBJECT_EX && !(member->flags & READONLY) ? member->offset : -1;
    }
    static void emberstate_fill(PyObject* row, Py_ssize_t offset, PyObject* value) {
        Py_INCREF(value);
        *(PyObject**)((char*)row + offset) = value;  // of a new object: it was empty
    }
    """
    object emberstate_alloc(object, Py_ssize_t)
    Py_ssize_t emberstate_offset(object)
    void emberstate_fill(object, Py_ssize_t, object)

cdef class RowMaker:
    cdef readonly object row_class
    cdef readonly object make
    cdef bytes offsets

cdef inline bytes slot_offsets(tuple slots):
    cdef Py_ssize_t offset
    cdef list found = []
    for slot in slots:
        offset = emberstate_offset(slot)
        if offset < 0:
            return b""
        found.append((<char*>&offset)[:sizeof(Py_ssize_t)])
    return b"".join(found)

cdef inline object made_row(RowMaker maker, list columns, Py_ssize_t position):
    cdef Py_ssize_t width = len(columns)
    cdef Py_ssize_t i
    cdef Py_ssize_t* offsets
    cdef PyObject* values[32]
    cdef object row
    if len(maker.offsets):
        offsets = <Py_ssize_t*>PyBytes_AS_STRING(maker.offsets)
        row = emberstate_alloc(maker.row_class, 0)
        for i in range(width):
            emberstate_fill(row, offsets[i], <object>PyList_GET_ITEM(<object>PyList_GET_ITEM(columns, i), position))
        return row
    if width > 32:
        return maker.make(*[column[position] for column in columns])
    for i in range(width):  # borrowed from the columns
        values[i] = PyList_GET_ITEM(<object>PyList_GET_ITEM(columns, i), position)
    return PyObject_Vectorcall(maker.make, values, width, NULL)

cdef inline object new_row(object row_class, list columns, Py_ssize_t position):
    if not PyType_Check(row_class):
        return made_row(<RowMaker?>row_class, columns, position)
    # Filled in place: tuple.__new__ would make a tuple of the values first and copy it.
    cdef Py_ssize_t width = len(columns)
    cdef object row = emberstate_alloc(row_class, width)
    cdef Py_ssize_t i
    cdef object value
    for i in range(width):
        value = <object>PyList_GET_ITEM(<object>PyList_GET_ITEM(columns, i), position)
        Py_INCREF(value)
        PyTuple_SET_ITEM(row, i, value)
    return row

cdef inline Py_ssize_t width_of(object row):
    return PyTuple_GET_SIZE(row) if PyTuple_Check(row) else -1

cdef inline object item_of(object row, Py_ssize_t position):
    return <object>PyTuple_GET_ITEM(row, position)

cdef inline object datetime_of(long long micros, object zone):
    # Days to year, month and day in eras of 400 years that begin in March, so that a leap day comes last.
    cdef long long day, second, era, year
    cdef unsigned int day_of_era, year_of_era, day_of_year, shifted, month
    if c_datetime.PyDateTimeAPI == NULL:
        c_datetime.import_datetime()
    if micros < -62135596800000000LL or micros > 253402300799999999LL:
        raise OverflowError("date value out of range")
    second = micros // 1000000
    micros -= second * 1000000
    day = second // 86400
    second -= day * 86400
    day += 719468
    era = day // 146097
    day_of_era = <unsigned int>(day - era * 146097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    return c_datetime.datetime_new(
        <int>year, <int>month, <int>(day_of_year - (153 * shifted + 2) // 5 + 1),
        <int>(second // 3600), <int>(second % 3600 // 60), <int>(second % 60), <int>micros, zone,
    )
