cdef class InternalState:
    cpdef object clear(self)
    cpdef object with_namespace(self, object namespace)

cdef class InternalValueState(InternalState):
    cpdef object value(self)
    cpdef object lend(self, object default)
    cpdef object update(self, object value)

cdef class InternalListState(InternalState):
    cpdef list get(self)
    cpdef list peek(self)
    cpdef object add(self, object element)
    cpdef object add_all(self, list elements)
    cpdef object update(self, list elements)
    cpdef Py_ssize_t size(self) except -1
    cpdef object merge_namespaces(self, object target, object sources)

cdef class InternalMapState(InternalState):
    cpdef object get(self, object user_key)
    cpdef object put(self, object user_key, object user_value)
    cpdef bint remove(self, object user_key) except -1
    cpdef bint contains(self, object user_key) except -1
    cpdef Py_ssize_t size(self) except -1

cdef class InternalFoldingState(InternalState):
    cpdef object get(self)
    cpdef object add(self, object value)
    cpdef object get_internal(self)
    cpdef object update_internal(self, object accumulator)
    cpdef object merge_namespaces(self, object target, object sources)

cdef class Folding:
    cdef readonly object fold
    cdef readonly object merge
    cdef readonly object result

cdef class StoredFoldingState(InternalFoldingState):
    cdef readonly Folding folding
    cpdef object operand(self)
    cpdef object check_stored(self, object accumulator)
