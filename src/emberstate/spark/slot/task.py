"""`SlotShim`: the code of a keyed stage in a Spark task. It streams the rows of its partition to the slot, and returns
the slot's answer to the driver. It has no state.

Thread safety: one task's thread; it travels from the driver as a value.
"""

from __future__ import annotations

import dataclasses
import itertools
import socket
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pyarrow as pa

from emberstate.runtime.rows.columns import BROADCAST_COLUMN
from emberstate.spark.slot.address import Executor, SlotId
from emberstate.spark.slot.client import run_in_slot
from emberstate.spark.slot.failure import noting_place
from emberstate.spark.slot.messages import SlotRequest

#: The columns that a keyed stage returns to the driver, one row per slot.
ANSWER_SCHEMA: Final = "slot int, answer binary"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotShim:
    """The function of `mapInArrow`, for all slots of one stage and batch."""

    slot_id: SlotId
    #: By slot, without the task's attempt, which the task fills in.
    requests: tuple[SlotRequest, ...]
    #: A Spark broadcast of the program's bytes.
    program: Any
    #: More directories to import modules from.
    path: tuple[str, ...] = ()

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the slot of this task's partition."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        sys.path += [entry for entry in self.path if entry not in sys.path]  # the slot gets the worker's path
        slot = context.partitionId()
        request = msgspec.structs.replace(self.requests[slot], task_attempt=context.taskAttemptId())
        slot_id = dataclasses.replace(self.slot_id, slot=slot)
        first = next(batches, None)
        rows: Iterator[pa.RecordBatch] = iter(())
        schema = pa.schema([])
        if first is not None:
            rows, schema = itertools.chain([first], batches), first.schema
            if BROADCAST_COLUMN in schema.names:
                rules, rows, schema = _split(rows, schema)
                request = msgspec.structs.replace(request, broadcast_rows=rules)
        with noting_place():
            answer = run_in_slot(slot_id, request, lambda: self.program.value, rows, schema)
        answer = msgspec.structs.replace(
            answer,
            executor=f"{socket.gethostname()}:{Executor.of_this_worker().process.pid}",
            spark_stage=context.stageId(),
            earlier_attempts=context.attemptNumber(),
        )
        yield pa.RecordBatch.from_arrays(
            [pa.array([slot], pa.int32()), pa.array([answer.to_bytes()], pa.binary())], names=["slot", "answer"]
        )


def _split(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema
) -> tuple[bytes, Iterator[pa.RecordBatch], pa.Schema]:
    """The broadcast rows, which come first, as an Arrow stream; and the other rows with their schema."""
    rest = schema.remove(schema.get_field_index(BROADCAST_COLUMN))
    struct = schema.field(BROADCAST_COLUMN).type
    sink = pa.BufferOutputStream()
    count = 0
    with pa.ipc.new_stream(sink, pa.schema(list(struct))) as writer:
        for batch in batches:
            column = batch.column(BROADCAST_COLUMN)
            leading = batch.num_rows - column.null_count
            if leading:
                writer.write_batch(pa.RecordBatch.from_struct_array(column.slice(0, leading)))
                count += leading
            if leading < batch.num_rows:
                batches = itertools.chain([batch.slice(leading)], batches)
                break
    rules: bytes = sink.getvalue().to_pybytes() if count else b""
    return rules, (batch.select(rest.names) for batch in batches), rest
