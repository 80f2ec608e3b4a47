"""`Part`: the rows that one slot gave to an output in one batch, as they are stored with the checkpoint.

A part is a small value that travels to Spark's tasks: it refers to a stored file, or has the bytes of a small one. It
reads nothing before it is asked, and what it gives has been compared with the checksum in the manifest.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.model import FileRef
from emberstate.checkpoint.manifest.open_files import verify_ref
from emberstate.errors import CorruptionError
from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """The rows of one slot."""

    #: Its place among the parts of the delivery, from 0. The same in every delivery of the batch.
    number: int
    rows: int
    row_type: RowType
    stored: StoredOutput
    backend: StateBackend

    @property
    def size(self) -> int:
        """In bytes."""
        return self.stored.size

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, for Arrow."""
        return arrow_schema(self.row_type)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the order in which they were emitted.

        Raises:
            CorruptionError: the stored bytes are damaged.
        """
        return self.stored.batches(self.backend.open_slot_storage(), self.row_type)

    def parquet_file(self) -> Path | None:
        """The stored Parquet file with these rows and no others, verified just now; None if they are stored otherwise.

        Read it, copy it or link it, but never change it: the batch may have to be delivered again.

        Raises:
            CorruptionError: the file is damaged.
        """
        storage, place = self.backend.open_slot_storage(), self.stored.place
        if storage is None or storage.directory is None or self.stored.format != "parquet" or isinstance(place, bytes):
            return None
        _check_whole(storage.size(place.path), place)
        verify_ref(storage, place)
        return Path(storage.directory, place.path)


def _check_whole(size: int, place: FileRef) -> None:
    """Raise unless the reference is to a whole file: readers find a Parquet file's footer by its end."""
    if place.offset or size != place.size:
        raise CorruptionError(
            f"{place.path}: expected {place.size} bytes from byte {place.offset} on, found a file of {size}. It is "
            f"damaged or was replaced. Restore an older checkpoint or a savepoint.",
            path=place.path,
            expected=place.size,
            found=size,
        )
