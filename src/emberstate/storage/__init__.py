"""Where checkpoints go: a tree of files that are written once, on a local disk, in memory, or in an object store.

Knows nothing of states or checkpoints; imports `errors` only. `interface` is the contract, `open_storage` finds the
storage that a URI names.
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

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
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
