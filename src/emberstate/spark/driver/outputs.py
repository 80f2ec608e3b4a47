"""Stored outputs as DataFrames, for sinks and for the next stage.

A DataFrame reads the stored rows each time it is evaluated; nothing is computed again. Small outputs come from the
driver's memory, large ones from the files, one task per file.

Thread safety: the driver's thread; readers travel to tasks as values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.model import FileRef
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.outputs import output_batches
from emberstate.runtime.rows.row import RowType
from emberstate.storage.interface import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Outputs up to this size go through the driver, in bytes.
DRIVER_BYTES: Final = 1024 * 1024

#: The bytes of an output, or the file that has them.
StoredOutput = bytes | FileRef


def output_frame(
    spark: SparkSession, outputs: Sequence[StoredOutput], row_type: RowType, backend: StateBackend
) -> DataFrame:
    """The rows of some stored outputs, in order of the outputs."""
    slot_storage = backend.open_slot_storage()
    size = sum(output.size if isinstance(output, FileRef) else len(output) for output in outputs)
    if slot_storage is None or size <= DRIVER_BYTES:
        storage, schema = backend.open_storage(), arrow_schema(row_type)
        batches = [batch for output in outputs for batch in _batches(storage, output, row_type)]
        if not batches:  # pyspark rejects a table of nested columns without batches
            batches = [pa.RecordBatch.from_pylist([], schema)]
        table = pa.Table.from_batches(batches, schema)
        return spark.createDataFrame(table, schema=row_type.schema)
    reader = _Reader(tuple(outputs), row_type, backend)
    tasks = spark.range(0, len(outputs), 1, len(outputs))
    return tasks.mapInArrow(reader, row_type.schema)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader:
    """The function of `mapInArrow` that reads the outputs of the numbers it gets."""

    outputs: tuple[StoredOutput, ...]
    row_type: RowType
    backend: StateBackend

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = self.backend.open_slot_storage()
        assert storage is not None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batches(storage, self.outputs[number], self.row_type)


def _batches(storage: Storage, output: StoredOutput, row_type: RowType) -> Iterator[pa.RecordBatch]:
    if isinstance(output, FileRef):
        return output_batches(read_ref(storage, output), row_type, f"{output.path}, byte {output.offset}")
    return output_batches(output, row_type)
