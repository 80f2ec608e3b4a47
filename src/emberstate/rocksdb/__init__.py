"""Keyed state in RocksDB, for state larger than memory.

`store` holds pairs of bytes and points in time, `state_table` maps the entries of a state to pairs, `states` and
`map_state` are over it; `backend` puts them together. Imports `state` and `codec`, and knows no files of checkpoints.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
    from emberstate.rocksdb.map_state import RocksDBMapState
    from emberstate.rocksdb.memory_budget import MemoryBudget
    from emberstate.rocksdb.states import RocksDBFoldingState, RocksDBListState, RocksDBValueState
    from emberstate.rocksdb.store import RocksDBStore

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
            "backend": ["RocksDBKeyedStateBackend"],
            "map_state": ["RocksDBMapState"],
            "states": ["RocksDBFoldingState", "RocksDBListState", "RocksDBValueState"],
            "store": ["RocksDBStore"],
        },
    )
