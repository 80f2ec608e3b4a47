from emberstate.rocksdb.current_entry cimport CurrentEntry
from emberstate.rocksdb.pair_access cimport PairAccess
from emberstate.state.internal_states cimport InternalMapState
from emberstate.state.key_context cimport KeyContext

cdef class RocksDBMapState(InternalMapState):
    cdef readonly object table
    cdef CurrentEntry entry
    cdef PairAccess pairs
    cdef object encode
    cdef object decode
    cdef object encode_user_key
