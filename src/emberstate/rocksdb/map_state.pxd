from emberstate.rocksdb.current_entry cimport CurrentEntry
from emberstate.rocksdb.pair_access cimport PairAccess
from emberstate.state.cells.scalars cimport ScalarEncoder
from emberstate.state.internal_states cimport InternalMapState
from emberstate.state.key_context cimport KeyContext

cdef class RocksDBMapState(InternalMapState):
    cdef readonly object table
    cdef CurrentEntry entry
    cdef PairAccess pairs
    cdef ScalarEncoder user_keys
    cdef ScalarEncoder user_values
    cdef object decode
