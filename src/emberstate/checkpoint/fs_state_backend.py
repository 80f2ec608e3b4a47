"""`FsStateBackend`: state on the heap, checkpoints in a file system or object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

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
        if not self.open_storage().shared:  # opening reads nothing, and refuses what is no location
            raise StateDeclarationError(f"{uri!r} cannot be reached by other processes: use MemoryStateBackend()")

    def open_storage(self) -> Storage:
        """The storage of the location."""
        return open_storage(self.uri, client_options=self.client_options)

    def open_slot_storage(self) -> Storage:
        """The same."""
        return self.open_storage()

    def __repr__(self) -> str:
        return f"FsStateBackend({os.fspath(self.uri)!r})"
