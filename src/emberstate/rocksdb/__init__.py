"""Keyed state in RocksDB, for state larger than memory. Imports `state` and `codec`; knows nothing of checkpoints'
files.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.rocksdb.memory_budget import MemoryBudget
    from emberstate.rocksdb.rocksdb_keyed_state_backend import RocksDBKeyedStateBackend
    from emberstate.rocksdb.rocksdb_snapshot import RocksDBSnapshot
    from emberstate.rocksdb.rocksdb_store import RocksDBStore

__all__ = ["MemoryBudget", "RocksDBKeyedStateBackend", "RocksDBSnapshot", "RocksDBStore"]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "memory_budget": ["MemoryBudget"],
            "rocksdb_keyed_state_backend": ["RocksDBKeyedStateBackend"],
            "rocksdb_snapshot": ["RocksDBSnapshot"],
            "rocksdb_store": ["RocksDBStore"],
        },
    )
