"""Checkpoint storage: a tree of files that are written once, on a local disk, in memory, or in an object store.

Knows no states or checkpoints; imports `errors` only. `interface` is the contract, `base` the common part of the
implementations, `open_storage` returns the storage of a URI.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.storage.interface import Storage
    from emberstate.storage.local import LocalStorage
    from emberstate.storage.memory import MemoryStorage
    from emberstate.storage.object_store import S3Storage
    from emberstate.storage.uri import open_storage

__all__ = ["LocalStorage", "MemoryStorage", "S3Storage", "Storage", "open_storage"]

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = exported(
        __name__,
        {
            "interface": ["Storage"],
            "local": ["LocalStorage"],
            "memory": ["MemoryStorage"],
            "object_store": ["S3Storage"],
            "uri": ["open_storage"],
        },
    )
