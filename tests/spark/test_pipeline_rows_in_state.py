"""Rows of an input, kept as they are: in windows and in states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import emberstate as es
from tests.spark.pipeline_functions import events
from tests.spark.streams import EVENTS, Kept, Stream

pytestmark = pytest.mark.spark

ROWS = es.RowType.of(EVENTS)
WINDOWS = es.TumblingEventTimeWindows.of("1 minute")
OUT = "key string, values array<bigint>"


class Values(es.ProcessWindowFunction):
    """The values of a window's rows."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[Any]:
        yield key, [row.value for row in elements]


class Keeping(es.AggregateFunction[Any, Any, Any]):
    """All rows of a window, as an aggregate."""

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [*accumulator, value]

    def get_result(self, accumulator: list[Any]) -> Any:
        return accumulator[0].key, [row.value for row in accumulator]

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        return [*one, *other]


def _later(one: Any, other: Any) -> Any:
    return max(one, other, key=lambda row: (row.ts, row.value))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fs", "rocksdb"])
def test_windows_of_rows(stream: Stream, kind: str) -> None:
    """Catches: "expected Row, got Row" from every window that keeps rows of its input."""
    given = events(200, keys=3)
    by_window: dict[Any, list[Any]] = {}
    for row in given:
        by_window.setdefault((row[0], row[1].replace(second=0)), []).append(row)
    values = sorted((key, [row[2] for row in rows]) for (key, _), rows in by_window.items())
    df = stream.spark.createDataFrame(given, EVENTS)

    def run(make: Any) -> list[Any]:
        kept = Kept()
        stage = stream.pipeline(kind).key_by("key").event_time("ts").window(WINDOWS)
        make(stage).sink(kept).run(df, batches=3)
        return sorted(kept.rows)

    assert run(lambda rows: rows.process("all", Values(), ROWS, OUT)) == values
    assert run(lambda rows: rows.process("all", Values(), ROWS.row_class, OUT)) == values
    assert run(lambda rows: rows.aggregate("all", Keeping(), OUT, accumulator_type=list[ROWS.row_class])) == values  # type: ignore[name-defined]
    last = sorted(max(rows, key=lambda row: (row[1], row[2])) for rows in by_window.values())
    assert run(lambda rows: rows.reduce("last", _later, ROWS, EVENTS)) == last


@pytest.mark.parametrize("kind", ["fs", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_rows_in_states_of_a_class_that_travels_by_value(stream: Stream, kind: str) -> None:
    """Catches: a class of rows that travels to a slot as a copy, which no row of the input is of."""

    class Keeper(es.KeyedProcessFunction):  # in no module that a slot could import: pickled by value, with its states
        last = es.value_state(ROWS.row_class)
        rows = es.list_state(ROWS.row_class)
        by_value = es.map_state(int, ROWS.row_class)

        def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
            before = self.last.value()
            self.last.update(row)
            self.rows.add(row)
            self.by_value[row.value] = row
            assert all(type(one) is type(row) for one in (*self.rows.get(), *self.by_value.values(), before or row))
            yield row.key, [one.value for one in self.rows.get()]

    given = events(60, keys=3)
    expected: list[Any] = []
    seen: dict[str, list[int]] = {}
    kept = Kept()
    for batch, parallelism in enumerate([2, 3, 1]):  # a restart at another parallelism restores all of it
        part = given[batch * 20 : (batch + 1) * 20]
        for key, _, value in part:
            seen[key] = [*seen.get(key, []), value]
            expected.append((key, seen[key]))
        stage = stream.pipeline(kind, parallelism=parallelism).key_by("key").event_time("ts")
        pipeline = stage.process("kept", Keeper(), OUT).sink(kept)
        pipeline(stream.spark.createDataFrame(part, EVENTS), batch)
    assert sorted(kept.rows) == sorted(expected)
