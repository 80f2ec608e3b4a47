"""Rows of the types that functions name, on Spark: which columns travel, and rows that wait while types change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import pytest

import emberstate as es
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.columns import ROW_COLUMNS
from tests.raising import raising
from tests.spark.streams import Kept, Stream, at

pytestmark = pytest.mark.spark

WIDE = "key string, a string, ts timestamp, b string, value bigint, c string"


@dataclasses.dataclass(slots=True)
class Bid:
    """What the first stage needs."""

    value: int
    key: str


class Sum(msgspec.Struct):
    """What it emits."""

    key: str
    closed: datetime
    total: int
    note: str | None = None


class Summing(es.KeyedProcessFunction[Bid, str, Sum]):
    """A running sum."""

    total = es.value_state(int, default=0)

    def process_element(self, row: Bid, ctx: es.FunctionContext) -> Iterator[Sum]:
        assert type(row) is Bid
        assert ctx.timestamp is not None
        self.total.update(self.total.value() + row.value)
        yield Sum(row.key, ctx.timestamp, self.total.value())


class Seen(NamedTuple):
    """What the second stage needs."""

    total: int


class Noted(NamedTuple):
    """What it needs later."""

    note: str | None
    closed: datetime
    key: str


class Listing(es.KeyedProcessFunction[Seen]):
    """The totals of every key so far."""

    totals = es.list_state(int)

    def process_element(self, row: Seen, ctx: es.FunctionContext) -> Iterator[Any]:
        self.totals.add(row.total)
        yield ctx.key, str(self.totals.get())


class Noting(es.KeyedProcessFunction[Noted]):
    """The same stage with another type of row."""

    totals = es.list_state(int)

    def process_element(self, row: Noted, ctx: es.FunctionContext) -> Iterator[Any]:
        assert type(row) is Noted
        yield row.key, f"{self.totals.get()} {row.note} {row.closed == ctx.timestamp}"


def wide(rows: list[Any]) -> list[Any]:
    """Rows of all columns."""
    return [(key, "a", ts, "b", value, "c") for key, ts, value in rows]


def pipeline(stream: Stream, kept: Kept, second: Any) -> es.Pipeline:
    """Two stages; the second holds its rows."""
    first = stream.pipeline().key_by("key").event_time("ts").process("sum", Summing())
    return first.key_by("key").event_time("closed").process("list", second, "key string, what string").sink(kept)


class Refunds(es.KeyedCoProcessFunction[Bid, Seen, str, Any]):
    """Two inputs, each with its own type."""

    def process_element1(self, row: Bid, ctx: es.FunctionContext) -> Iterator[Any]:
        yield row.key, row.value

    def process_element2(self, row: Seen, ctx: es.FunctionContext) -> Iterator[Any]:
        yield ctx.key, -row.total


def test_only_needed_columns_travel(stream: Stream) -> None:
    """Catches: a column that nobody reads and the source reads all the same, or that is shuffled and sent to slots."""
    spark, kept = stream.spark, Kept()
    df = spark.createDataFrame(wide([("k", at(1), 2), ("k", at(2), 3)]), WIDE)
    assert pipeline(stream, kept, Listing()).inputs(df).columns == ["key", "ts", "value"]
    second = spark.createDataFrame([("k", 7, "x")], "id string, total int, x string")
    both = stream.pipeline("memory", parallelism=1).key_by("key").connect("refunds", "id")
    joined = both.process("both", Refunds(), "key string, n bigint").sink(kept)
    types: list[Any] = [joined.inputs(df, refunds=second).schema[name].dataType for name in ROW_COLUMNS]
    assert [one.names for one in types] == [["key", "value"], ["id", "total"]]
    joined.run(df, inputs={"refunds": second})
    assert sorted(kept.rows) == [("k", -7), ("k", 2), ("k", 3)]


def test_types_are_checked_before_anything_runs(stream: Stream) -> None:
    """Catches: a type that does not fit its stream, told when the first batch has begun."""
    df = stream.spark.createDataFrame([("k", at(1), "2")], "key string, ts timestamp, value string")
    with raising(StateDeclarationError, operator="sum", column="value", expected="string"):
        pipeline(stream, Kept(), Listing()).inputs(df)


@pytest.mark.long
def test_held_rows_wait_whole_while_their_type_changes(stream: Stream) -> None:
    """Catches: rows that wait with the columns of yesterday's type; a typed stage that orders rows otherwise."""
    stream.schema = WIDE
    kept = Kept()
    stream.add(wide([("k", at(1), 2), ("j", at(2), 3)]), wide([("k", at(3), 5)]))
    stream.drain(pipeline(stream, kept, Listing()))
    assert kept.rows == [("k", "[2]")]
    stream.add(wide([("k", at(100), 1)]), wide([("k", at(200), 1)]))
    stream.drain(pipeline(stream, kept, Noting()))
    assert kept.rows == [("k", "[2]"), ("j", "[] None True"), ("k", "[2] None True")]
