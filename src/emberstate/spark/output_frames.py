"""Stored outputs as DataFrames: what a sink gets, and what the next stage reads.

A DataFrame reads the stored rows each time it is evaluated, wherever: nothing is computed again. Few rows come from
the driver's memory, many from the files, one task per file.

Thread safety: the driver's thread; readers travel to tasks as values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from emberstate.checkpoint.manifest import Place
from emberstate.checkpoint.state_backend import StateBackend
from emberstate.checkpoint.stored_files import read_place
from emberstate.runtime.arrow_rows import arrow_schema
from emberstate.runtime.row import RowType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Up to so many bytes go through the driver.
DRIVER_BYTES: Final = 1024 * 1024

#: The bytes of an output, or where they stand.
StoredOutput = bytes | Place


def output_frame(
    spark: SparkSession, outputs: Sequence[StoredOutput], row_type: RowType, backend: StateBackend
) -> DataFrame:
    """The rows of some stored outputs, in order of the outputs."""
    slot_storage = backend.open_slot_storage()
    size = sum(output.size if isinstance(output, Place) else len(output) for output in outputs)
    if slot_storage is None or size <= DRIVER_BYTES:
        storage = backend.open_storage()
        contents = [read_place(storage, output) if isinstance(output, Place) else output for output in outputs]
        schema = arrow_schema(row_type)
        batches = [batch for content in contents for batch in _batches(content)]
        if not batches:  # pyspark does not take a table of nested columns without any
            batches = [pa.RecordBatch.from_pylist([], schema)]
        table = pa.Table.from_batches(batches, schema)
        return spark.createDataFrame(table, schema=row_type.schema)
    reader = _Reader(tuple(outputs), backend)
    tasks = spark.range(0, len(outputs), 1, len(outputs))
    return tasks.mapInArrow(reader, row_type.schema)


@dataclasses.dataclass(frozen=True, slots=True)
class _Reader:
    """The function of `mapInArrow` that reads the outputs whose numbers come."""

    outputs: tuple[StoredOutput, ...]
    backend: StateBackend

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        storage = self.backend.open_slot_storage()
        assert storage is not None
        for batch in batches:
            for number in batch.column(0).to_pylist():
                output = self.outputs[number]
                yield from _batches(read_place(storage, output) if isinstance(output, Place) else output)


def _batches(content: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(content) as reader:
        yield from reader
