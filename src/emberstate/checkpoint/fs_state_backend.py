"""`FsStateBackend`: state on the heap, checkpoints in a file system or object store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from emberstate.checkpoint.layout import new_id
from emberstate.checkpoint.local_storage import LocalStorage
from emberstate.checkpoint.state_backend import StateBackend
from emberstate.checkpoint.storage import Storage
from emberstate.checkpoint.storage_uri import open_storage
from emberstate.errors import StateDeclarationError


class FsStateBackend(StateBackend):
    """Working state on the heap; checkpoints in a location that the driver and all executors reach.

    The location is a path or `file://…` (on a cluster: of a file system that all machines share), or `s3://…`
    (with the extra `s3`; `client_options` are boto3's). Every job has a location of its own.

    >>> FsStateBackend("s3://bucket/cards")
    FsStateBackend('s3://bucket/cards')
    """

    def __init__(self, uri: str | os.PathLike[str], *, client_options: Mapping[str, Any] | None = None) -> None:
        self.uri = uri
        self.client_options = client_options
        storage = self.open_storage()  # opening reads nothing, and refuses what is no location
        if not storage.shared:
            raise StateDeclarationError(f"{uri!r} cannot be reached by other processes: use MemoryStateBackend()")
        if isinstance(storage, LocalStorage):
            self.uri = storage.describe()  # absolute: slots have other working directories

    def open_storage(self) -> Storage:
        """The storage of the location."""
        return open_storage(self.uri, client_options=self.client_options)

    def open_slot_storage(self) -> Storage:
        """The same."""
        return self.open_storage()

    def scratch(self) -> FsStateBackend:
        """A location beside this one."""
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
    """A location beside `uri` that nobody else has."""
    return f"{os.fspath(uri).rstrip('/')}.run-{new_id()}"
