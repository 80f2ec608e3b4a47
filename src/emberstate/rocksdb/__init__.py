"""Keyed state in RocksDB, for state larger than memory. Imports `state` and `codec`; knows nothing of checkpoints'
files.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.rocksdb.memory_budget import MemoryBudget
    from emberstate.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
    from emberstate.rocksdb.rocksdb_map_state import RocksDBMapState
    from emberstate.rocksdb.rocksdb_states import RocksDBFoldingState, RocksDBListState, RocksDBValueState
    from emberstate.rocksdb.rocksdb_store import RocksDBStore

__all__ = [
    "MemoryBudget",
    "RocksDBFoldingState",
    "RocksDBKeyedStateBackend",
    "RocksDBListState",
    "RocksDBMapState",
    "RocksDBStore",
    "RocksDBValueState",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "memory_budget": ["MemoryBudget"],
            "rocksdb_keyed_state_backend": ["RocksDBKeyedStateBackend"],
            "rocksdb_map_state": ["RocksDBMapState"],
            "rocksdb_states": ["RocksDBFoldingState", "RocksDBListState", "RocksDBValueState"],
            "rocksdb_store": ["RocksDBStore"],
        },
    )
