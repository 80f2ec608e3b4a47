"""`RocksDBStateBackend`: state on local disk, checkpoints in a file system or object store.

RocksDB itself is an extra, and is loaded when the first of these is made.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from emberstate.checkpoint.byte_sizes import as_bytes
from emberstate.checkpoint.fs_state_backend import FsStateBackend, scratch_uri
from emberstate.checkpoint.state_backend import StateBackend
from emberstate.checkpoint.storage import Storage
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.keyed_state_backend import KeyedStateBackend

if TYPE_CHECKING:
    from types import ModuleType


class RocksDBStateBackend(StateBackend):
    """Working state in RocksDB, for state that is larger than memory; checkpoints as with `FsStateBackend`.

    Every slot takes up to `memory` (bytes, or text such as "256 MiB") for what grows with its state, and has files
    of its own below `local_directory`: scratch space, deleted when the slot is closed, best on a fast local disk.
    The default is the system's temporary directory, which must not be memory itself (tmpfs). Checkpoints are the
    same as those of the other backends: a job may change from one to the other.

    >>> RocksDBStateBackend("s3://bucket/cards", memory="512 MiB")
    RocksDBStateBackend('s3://bucket/cards', memory=536870912)
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        memory: int | str = "256 MiB",
        local_directory: str | os.PathLike[str] | None = None,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Refuses a memory that RocksDB cannot work with, and a location that slots cannot reach."""
        self._checkpoints = FsStateBackend(uri, client_options=client_options)
        self.memory = as_bytes(memory, "the memory of a RocksDBStateBackend")
        self.local_directory = None if local_directory is None else os.fspath(local_directory)
        _rocksdb().MemoryBudget.of(self.memory)  # here, where it is declared, and not in a slot

    def open_storage(self) -> Storage:
        """The storage of the location."""
        return self._checkpoints.open_storage()

    def open_slot_storage(self) -> Storage:
        """The same."""
        return self._checkpoints.open_slot_storage()

    def scratch(self) -> RocksDBStateBackend:
        """A location beside this one."""
        return RocksDBStateBackend(
            scratch_uri(self._checkpoints.uri),
            memory=self.memory,
            local_directory=self.local_directory,
            client_options=self._checkpoints.client_options,
        )

    def discard(self) -> None:
        """Delete everything at the location."""
        self._checkpoints.discard()

    def make_keyed_backend(
        self,
        key_schema: KeySchema,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
    ) -> KeyedStateBackend:
        """An empty RocksDB for a range of key groups (default: all).

        Raises:
            LocalStateError: the local directory cannot be used.
        """
        backend: KeyedStateBackend = _rocksdb().RocksDBKeyedStateBackend(
            key_schema,
            tempfile.gettempdir() if self.local_directory is None else self.local_directory,
            max_parallelism=max_parallelism,
            key_group_range=key_group_range,
            memory_limit=self.memory,
        )
        return backend

    def __repr__(self) -> str:
        return f"RocksDBStateBackend({os.fspath(self._checkpoints.uri)!r}, memory={self.memory})"


def _rocksdb() -> ModuleType:
    """The module of the backend; a clear error where the extra is not installed."""
    try:
        from emberstate.rocksdb import rocksdb_keyed_state_backend
    except ModuleNotFoundError as error:
        if error.name != "rocksdict":
            raise
        raise StateDeclarationError(
            "RocksDBStateBackend needs rocksdict, which is not installed here: pip install emberstate[rocksdb], "
            "on the driver and on all executors"
        ) from None
    return rocksdb_keyed_state_backend
