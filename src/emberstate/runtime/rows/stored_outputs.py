"""`StoredOutput`: the rows that one slot emitted to one output, as they are stored.

Thread safety: immutable values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pyarrow as pa

from emberstate.checkpoint.commit.messages import WrittenOutput
from emberstate.checkpoint.manifest.model import FileRef, Output, OutputFormat
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.runtime.rows.outputs import output_batches
from emberstate.runtime.rows.row import RowType
from emberstate.storage.interface import Storage


@dataclasses.dataclass(frozen=True, slots=True)
class StoredOutput:
    """The bytes of an output, or the file that has them."""

    place: bytes | FileRef
    format: OutputFormat = "arrow"

    @classmethod
    def of(cls, output: Output | WrittenOutput) -> StoredOutput:
        """An output of a manifest, or of a slot's answer."""
        content = output.content if isinstance(output, WrittenOutput) else None
        place = output.place if content is None else content
        assert place is not None
        return cls(place, output.format)

    @property
    def size(self) -> int:
        """In bytes."""
        return self.place.size if isinstance(self.place, FileRef) else len(self.place)

    def inline(self, storage: Storage) -> StoredOutput:
        """The same with its bytes, for a process that cannot reach the storage."""
        return self if isinstance(self.place, bytes) else StoredOutput(read_ref(storage, self.place), self.format)

    def batches(self, storage: Storage | None, row_type: RowType) -> Iterator[pa.RecordBatch]:
        """The rows. Raises `CorruptionError` if they are damaged."""
        if isinstance(self.place, bytes):
            return output_batches(self.place, row_type, format=self.format)
        assert storage is not None
        name = f"{self.place.path}, byte {self.place.offset}"
        return output_batches(read_ref(storage, self.place), row_type, name, self.format)
