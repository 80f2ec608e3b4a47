"""Stored outputs as DataFrames: what is damaged or made to do harm is refused, on the driver and in tasks."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

import emberstate as es
from emberstate.checkpoint.manifest.model import FileRef
from emberstate.errors import CorruptionError
from emberstate.runtime.rows.arrow_rows import arrow_schema, batch_of
from emberstate.runtime.rows.outputs import write_output
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.spark.driver.outputs import DRIVER_BYTES, output_frame
from emberstate.storage.checksums import checksum

pytestmark = pytest.mark.spark

WORDS = RowType.of("word string")


def bomb() -> bytes:
    """A few KB that Arrow would make 64 MiB of."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(WORDS), options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch([pa.array(["\0" * 2**26])], schema=arrow_schema(WORDS)))
    content: bytes = sink.getvalue().to_pybytes()
    return content


def astray(size: int) -> bytes:
    """An output of about a size, in which a text ends where there is nothing."""
    content = write_output([batch_of([("x" * size,)], WORDS)], WORDS)
    return content.replace(struct.pack("<2i", 0, size), struct.pack("<2i", 0, 2**31 - 1))


@pytest.mark.long
@pytest.mark.reliability(27)
def test_hostile_outputs_are_refused_on_the_driver_and_in_tasks(spark: Any, tmp_path: Path) -> None:
    """Catches: outputs that are taken at their word: the driver's memory filled by 15 KB, and offsets that raise
    something which is no CorruptionError, or read what is not theirs, where an output is large."""
    backend = es.FsStateBackend(tmp_path)
    for content in (bomb(), astray(3), write_output([], RowType.of("word bigint")), b"nothing"):
        with pytest.raises(CorruptionError):
            output_frame(spark, [StoredOutput(content)], WORDS, backend)
    large = astray(DRIVER_BYTES)
    backend.open_storage().write_new("output/000001/x", large)
    place = FileRef("output/000001/x", len(large), checksum(large))
    with pytest.raises(PythonException, match=r"CorruptionError.*output/000001/x"):
        output_frame(spark, [StoredOutput(place)], WORDS, backend).collect()
