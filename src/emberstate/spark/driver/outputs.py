"""Stored outputs as DataFrames, for sinks and for the next stage.

A DataFrame reads the stored rows each time it is evaluated; nothing is computed again. Small outputs come from the
driver's memory. Of large ones, Parquet files are verified here, when the frame is made, and then read by Spark itself,
one task per file. What Spark cannot read, or would take the driver too long to verify, is read in Python, by tasks that
verify it themselves.

Rows of one output keep their order. Outputs come in the order of their slots; if some are large and others small, the
large ones come first.

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
from emberstate.errors import CorruptionError
from emberstate.runtime.rows.parquet_outputs import check_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.spark.driver.memory_frame import memory_frame
from emberstate.spark.driver.parquet_frame import parquet_frame
from emberstate.spark.driver.sql_text import schema_text
from emberstate.storage.interface import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Outputs up to this size go through the driver, in bytes.
DRIVER_BYTES: Final = 1024 * 1024
#: Outputs up to this size are verified by the driver, in bytes; larger ones by the tasks that read them.
VERIFIED_BYTES: Final = 256 * 1024 * 1024


def output_frame(
    spark: SparkSession, outputs: Sequence[StoredOutput], row_type: RowType, backend: StateBackend
) -> DataFrame:
    """The rows of some stored outputs.

    Raises:
        CorruptionError: one that is verified here is damaged, missing or another.
    """
    if backend.open_slot_storage() is None or _size(outputs) <= DRIVER_BYTES:
        return _frame_in_memory(spark, outputs, row_type, backend)
    found = _frame_of_files(spark, outputs, row_type, backend)
    if found is not None:
        return found
    reader = _Reader(tuple(outputs), row_type, backend)
    tasks = spark.range(0, len(outputs), 1, len(outputs))
    return tasks.mapInArrow(reader, schema_text(row_type))


def _size(outputs: Sequence[StoredOutput]) -> int:
    return sum(output.size for output in outputs)


def _frame_in_memory(
    spark: SparkSession, outputs: Sequence[StoredOutput], row_type: RowType, backend: StateBackend
) -> DataFrame:
    storage = backend.open_storage()
    batches = [batch for output in outputs for batch in output.batches(storage, row_type)]
    return memory_frame(spark, batches, row_type)


def _frame_of_files(
    spark: SparkSession, outputs: Sequence[StoredOutput], row_type: RowType, backend: StateBackend
) -> DataFrame | None:
    """The frame that Spark reads by itself; None if it cannot."""
    storage = backend.open_storage()
    files = [one.place for one in outputs if one.format == "parquet" and isinstance(one.place, FileRef)]
    others = [one for one in outputs if one.format != "parquet" or not isinstance(one.place, FileRef)]
    size = sum(file.size for file in files)
    if storage.directory is None or not 0 < size <= VERIFIED_BYTES or _size(others) > DRIVER_BYTES:
        return None
    for file in files:
        _verify(storage, file, row_type)
    large = parquet_frame(spark, storage.directory, files, row_type)
    if large is None or not others:
        return large
    return large.union(_frame_in_memory(spark, others, row_type, backend))


def _verify(storage: Storage, file: FileRef, row_type: RowType) -> None:
    """Raise `CorruptionError` if a file is not the one that was written. Spark reads it to its end, so it has one."""
    size = storage.size(file.path)
    if file.offset or size != file.size:
        raise CorruptionError(
            f"{file.path}: expected {file.size} bytes from byte {file.offset} on, found a file of {size}. It is "
            f"damaged or was replaced. Restore an older checkpoint or a savepoint.",
            path=file.path,
            expected=file.size,
            found=size,
        )
    check_parquet(read_ref(storage, file), row_type, file.path)


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
                yield from self.outputs[number].batches(storage, self.row_type)
