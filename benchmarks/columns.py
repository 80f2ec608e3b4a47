"""Running totals in columns and row by row: 200,000 rows of 100,000 keys per batch, a snapshot live.

As a declared aggregate of partial rows, in columns and row by row; as functions: `process_arrow` and `process_batch`.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.measure import SEED, Target, print_table, save, side_by_side, timed
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.names import count, sum
from emberstate.runtime.aggregates.running import RunningAggregates
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.functions.declared_columns import column_state
from emberstate.runtime.functions.declared_states import value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.columns import KEY_GROUP_COLUMN, ROWS_COLUMN
from emberstate.runtime.rows.keyed_input import KeyedInput

ROWS = 200_000
KEYS = 100_000
ROUNDS = 5
GROUPS = 128
SCHEMA = KeySchema.from_python(str)
SPEC = AggregateSpec.of({"n": count(), "total": sum("amount")}, "card string, amount double", ["card"])


class ArrowTotals(KeyedProcessFunction):
    """Count and sum, by whole batches."""

    n = column_state(int, default=0)
    total = column_state(float, default=0.0)

    def process_arrow(self, batch: pa.RecordBatch, keys: Any) -> pa.RecordBatch:
        self.n.add_at(keys.handles, 1)
        self.total.add_at(keys.handles, batch.column("amount"))
        arrays = [keys.column("card"), self.n.get_many(keys.distinct), self.total.get_many(keys.distinct)]
        return pa.record_batch(arrays, SPEC.output.names)


class BatchTotals(KeyedProcessFunction):
    """The same, by the rows of each key."""

    n = value_state(int, default=0)
    total = value_state(float, default=0.0)

    def process_batch(self, key: Any, rows: list[Any], ctx: Any) -> Any:
        n, total = self.n.value() + len(rows), self.total.value()
        for row in rows:
            total += row.amount
        self.n.update(n)
        self.total.update(total)
        return key, n, total


def make_operator(function: KeyedProcessFunction) -> KeyedOperator:
    """A slot with the stage."""
    backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=GROUPS)
    row_type = SPEC.partial if isinstance(function, RunningAggregates) else SPEC.input
    operator = KeyedOperator(
        "totals", function, backend, inputs=[KeyedInput(row_type, SPEC.keys)], output=SPEC.output
    )
    operator.open()
    return operator


def make_batches(number: int) -> list[pa.RecordBatch]:
    """Partial rows of random keys."""
    chance = np.random.default_rng(SEED)
    cards = [f"card-{key:06d}" for key in range(KEYS)]
    random.Random(SEED).shuffle(cards)
    groups = np.array([SCHEMA.key_group(card, GROUPS) for card in cards], np.int32)
    names = [*[column.name for column in SPEC.partial.columns], KEY_GROUP_COLUMN, "amount"]
    found = []
    for _ in range(number):
        which = chance.integers(0, KEYS, ROWS)
        amounts, ones = chance.random(ROWS), np.ones(ROWS, np.int64)
        columns: list[Any] = [pa.array(cards).take(pa.array(which)), ones, amounts, ones, groups[which], amounts]
        assert names[3] == ROWS_COLUMN
        found.append(pa.RecordBatch.from_arrays([*map(pa.array, columns)], names=names))
    return found


class Slot:
    """Runs transactions, each with a snapshot of what was before, as commits take them."""

    def __init__(self, batches: list[pa.RecordBatch], function: KeyedProcessFunction) -> None:
        self.batches = batches
        self.operator = make_operator(function)
        self.snapshot: Any = None

    def merge(self, number: int) -> None:
        """Merge a batch, without its results."""
        if self.snapshot is not None:
            self.snapshot.release()
        self.snapshot = self.operator.snapshot()
        self.operator.begin(processing_time=0)
        self.operator.process_batch(self.batches[number % len(self.batches)])

    def transaction(self, number: int) -> Any:
        """Merge a batch and make the results."""
        self.merge(number)
        return self.operator.end().outputs["main"].batches()


def main() -> None:
    """Compare them."""
    batches = make_batches(ROUNDS)
    in_columns = Slot(batches, aggregate_function(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningAggregates, "_in_columns", lambda self, ctx: None)
        by_rows = Slot(batches, aggregate_function(SPEC))
    by_arrow, by_key = Slot(batches, ArrowTotals()), Slot(batches, BatchTotals())
    for slot in (in_columns, by_rows, by_arrow, by_key):
        slot.transaction(0)  # the keys are new only once
    mine, theirs, ratio = side_by_side(in_columns.transaction, by_rows.transaction, ROUNDS)
    arrow, batch, faster = side_by_side(by_arrow.transaction, by_key.transaction, ROUNDS)
    merged = []
    for number in range(ROUNDS):
        merged.append(timed(lambda n=number: in_columns.merge(n)))  # type: ignore[misc]
        in_columns.operator.end()
    merge = sorted(merged)[ROUNDS // 2]
    rows = [
        ("columns, merge", ROWS / merge / 1e6),
        ("columns, merge and results", ROWS / mine / 1e6),
        ("row by row, merge and results", ROWS / theirs / 1e6),
        ("process_arrow", ROWS / arrow / 1e6),
        ("process_batch", ROWS / batch / 1e6),
    ]
    print_table(f"{ROWS:,} rows of {KEYS:,} keys per batch", ["way", "million rows/s of CPU"], rows)
    results = dict(rows) | {"ratio": ratio, "process_arrow against process_batch": faster}
    targets = [Target("a partial row merged in columns", merge / ROWS * 1e9, 200.0, "ns")]
    save("columns", ROUNDS, results, targets)


if __name__ == "__main__":
    main()
