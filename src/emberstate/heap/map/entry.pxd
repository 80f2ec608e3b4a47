cdef class StateMapEntry:
    cdef readonly object key
    cdef readonly object namespace
    cdef readonly object state
    cdef readonly StateMapEntry next
    cdef readonly unsigned int hash
    cdef readonly unsigned int entry_version
    cdef readonly unsigned int state_version

cdef StateMapEntry new_entry(
    object key, object namespace, object state, StateMapEntry next, unsigned int hash,
    unsigned int entry_version, unsigned int state_version
)
