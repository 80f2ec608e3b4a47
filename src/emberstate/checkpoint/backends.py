"""State backends, of which a user chooses one: they say where working state and checkpoints are kept.

    MemoryStateBackend    state on the heap, checkpoints in the coordinator's memory; for tests and trials
    FsStateBackend        state on the heap, checkpoints in a file system or object store
    RocksDBStateBackend   state on local disk, checkpoints in a file system or object store

A state backend is a small value that travels from the driver to the slots. It opens nothing by itself. RocksDB is an
extra, which the first `RocksDBStateBackend` imports.

Thread safety: immutable, apart from the memory of a `MemoryStateBackend`, which any thread may use.
"""

from __future__ import annotations

import abc
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.checkpoint.manifest.layout import new_id
from emberstate.errors import InstallationError, StateDeclarationError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.storage.uri import open_storage
from emberstate.units import as_bytes

if TYPE_CHECKING:
    from types import ModuleType


Declare = Callable[[KeyedStateBackend], None]


class StateBackend(abc.ABC):
    """Where working state and checkpoints are kept."""

    #: The largest size of a state in one slot's checkpoint, in bytes; None: no limit.
    max_state_size: int | None = None

    @abc.abstractmethod
    def open_storage(self) -> Storage:
        """Return the checkpoint storage, for the coordinator and for readers."""

    @abc.abstractmethod
    def open_slot_storage(self) -> Storage | None:
        """Return the checkpoint storage for a slot, which may be another process; None if it cannot reach it."""

    @abc.abstractmethod
    def scratch(self) -> StateBackend:
        """Return a backend of the same kind, with a new, empty storage for temporary checkpoints."""

    @abc.abstractmethod
    def discard(self) -> None:
        """Delete all checkpoints and savepoints of a backend that `scratch` made."""

    def make_keyed_backend(
        self,
        key_schema: KeySchema,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
    ) -> KeyedStateBackend:
        """Return an empty keyed state backend for a range of key groups (default: all)."""
        return HeapKeyedStateBackend(key_schema, max_parallelism=max_parallelism, key_group_range=key_group_range)

    def make_slot(
        self,
        key_schema: KeySchema,
        declare: Declare,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        policy: ChainPolicy = DEFAULT_POLICY,
    ) -> SlotCheckpoint:
        """Return a slot's side of the checkpoints. `declare(backend)` registers the states of every new backend."""

        def make(groups: KeyGroupRange) -> KeyedStateBackend:
            backend = self.make_keyed_backend(key_schema, max_parallelism=max_parallelism, key_group_range=groups)
            declare(backend)
            return backend

        return SlotCheckpoint(make, self.open_slot_storage(), policy=policy, state_limit=self.max_state_size)


#: Flink's default.
DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024


class MemoryStateBackend(StateBackend):
    """Working state on the heap; checkpoints live as long as this object does, in the process that made it.

    Slots send their changes to the coordinator, so no state of a slot may encode to more than
    `max_state_size` bytes: `StorageError` names the state, and `FsStateBackend` has no such limit.

    >>> MemoryStateBackend()
    MemoryStateBackend(max_state_size=5242880)
    """

    def __init__(self, max_state_size: int = DEFAULT_MAX_STATE_SIZE) -> None:
        if type(max_state_size) is not int or max_state_size <= 0:
            what = f"max_state_size must be a positive number of bytes, got {max_state_size!r}"
            raise StateDeclarationError(what, option="max_state_size", found=max_state_size)
        self.max_state_size: int = max_state_size
        self._storage = MemoryStorage()

    def open_storage(self) -> Storage:
        """Return the same storage every time."""
        return self._storage

    def open_slot_storage(self) -> Storage | None:
        """Return None: a slot is usually another process, and gets its files with its tasks."""
        return None

    def scratch(self) -> MemoryStateBackend:
        """Return one with its own memory."""
        return MemoryStateBackend(self.max_state_size)

    def discard(self) -> None:
        """Delete everything."""
        self._storage.delete_all(self._storage.list())

    def __reduce__(self) -> Any:
        return MemoryStateBackend, (self.max_state_size,)  # checkpoints stay with the coordinator

    def __repr__(self) -> str:
        return f"MemoryStateBackend(max_state_size={self.max_state_size})"


class FsStateBackend(StateBackend):
    """Working state on the heap; checkpoints in a location that the driver and all executors reach.

    The location is a path or `file://…` (on a cluster: of a file system that all machines share), or `s3://…`
    (with the extra `s3`; `client_options` are boto3's). Every job needs its own location.

    >>> FsStateBackend("s3://bucket/cards")
    FsStateBackend('s3://bucket/cards')
    """

    def __init__(self, uri: str | os.PathLike[str], *, client_options: Mapping[str, Any] | None = None) -> None:
        self.uri = uri
        self.client_options = client_options
        storage = self.open_storage()  # reads nothing, and rejects an invalid location
        if not storage.shared:
            what = f"other processes cannot reach {uri!r}. Use MemoryStateBackend()."
            raise StateDeclarationError(what, option="uri", found=os.fspath(uri))
        if isinstance(storage, LocalStorage):
            self.uri = storage.describe()  # absolute, since slots have other working directories

    def open_storage(self) -> Storage:
        """Return the storage of the location."""
        return open_storage(self.uri, client_options=self.client_options)

    def open_slot_storage(self) -> Storage:
        """Return the storage of the location."""
        return self.open_storage()

    def scratch(self) -> FsStateBackend:
        """Return a backend with a location beside this one."""
        return FsStateBackend(scratch_uri(self.uri), client_options=self.client_options)

    def discard(self) -> None:
        """Delete everything at the location."""
        storage = self.open_storage()
        storage.delete_all(storage.list())
        if isinstance(storage, LocalStorage):
            shutil.rmtree(storage.describe(), ignore_errors=True)

    def __repr__(self) -> str:
        return f"FsStateBackend({os.fspath(self.uri)!r})"


def scratch_uri(uri: str | os.PathLike[str]) -> str:
    """Return a new location beside `uri`."""
    return f"{os.fspath(uri).rstrip('/')}.run-{new_id()}"


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
        """Reject a memory that is too small for RocksDB, and a location that slots cannot reach."""
        self._checkpoints = FsStateBackend(uri, client_options=client_options)
        self.memory = as_bytes(memory, "memory", "a RocksDBStateBackend")
        self.local_directory = None if local_directory is None else os.fspath(local_directory)
        _rocksdb().MemoryBudget.of(self.memory)  # fail here rather than in a slot

    def open_storage(self) -> Storage:
        """Return the storage of the location."""
        return self._checkpoints.open_storage()

    def open_slot_storage(self) -> Storage:
        """Return the storage of the location."""
        return self._checkpoints.open_slot_storage()

    def scratch(self) -> RocksDBStateBackend:
        """Return a backend with a location beside this one."""
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
        """Return an empty RocksDB backend for a range of key groups (default: all).

        Raises:
            StorageError: the local directory cannot be used.
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
    """Return the module of the backend. Raises if the extra is not installed."""
    try:
        from emberstate.rocksdb import backend
    except ModuleNotFoundError as error:
        if error.name != "rocksdict":
            raise
        raise InstallationError(
            "RocksDBStateBackend needs rocksdict, which is not installed here. Run pip install emberstate[rocksdb] "
            "on the driver and on all executors."
        ) from None
    return backend
