from emberstate.rocksdb.current_entry cimport CurrentEntry
from emberstate.rocksdb.pair_access cimport PairAccess
from emberstate.state.internal_states cimport Folding, InternalListState, InternalValueState, StoredFoldingState

cdef class RocksDBValueState(InternalValueState):
    cdef readonly object table
    cdef CurrentEntry entry
    cdef PairAccess pairs
    cdef object encode
    cdef object decode

cdef class RocksDBListState(InternalListState):
    cdef readonly object table
    cdef CurrentEntry entry
    cdef PairAccess pairs
    cdef object encode

cdef class RocksDBFoldingState(StoredFoldingState):
    cdef readonly object table
    cdef RocksDBValueState stored
