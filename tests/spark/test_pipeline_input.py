"""What comes in: keys, times, columns and types that fit, and those that are refused with what to do."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import RowTypeError, StateDeclarationError, UserFunctionError
from emberstate.keygroups import KeySchema
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.spark.driver.sql_text import event_micros
from tests.raising import raising
from tests.spark.pipeline_functions import BURSTS, TOTALS, Bursts, Totals, bursts, events, totals
from tests.spark.streams import EVENTS, Kept, Stream, at, query_failing, rows_of

pytestmark = pytest.mark.spark


def made(stream: Stream, sink: Any = None, **options: Any) -> es.Pipeline:
    """Totals by key, in order of time."""
    stage = stream.pipeline().key_by("key", **options).event_time("ts")
    return stage.process("totals", Totals(), TOTALS).sink(sink or Kept())


def test_null_keys(stream: Stream) -> None:
    """Catches: rows without a key that vanish uncounted, or share a state as if null were a key."""
    given = events(20)
    stream.add([*given[:10], (None, given[10][1], 1), *given[11:]])
    pipeline = made(stream)
    with query_failing(pipeline, RowTypeError, column="key", batch=0):
        stream.drain(pipeline)
    with raising(RowTypeError, column="key"):
        made(stream).run(stream.static())
    kept = Kept()
    (progress,) = made(stream, kept, null_keys="drop").run(stream.static())
    assert sorted(kept.rows) == sorted(totals([*given[:10], *given[11:]]))
    assert (progress.null_keys, progress.rows_in) == (1, 19)
    with raising(StateDeclarationError, "null_keys"):
        made(stream, null_keys="ignore")


def test_null_and_late_times(stream: Stream) -> None:
    """Catches: rows without a time that are lost on the way; late rows that are dropped uncounted."""
    frame = stream.spark.createDataFrame([("a", at(0), 1), ("a", None, 1)], EVENTS)
    with raising(RowTypeError, column="ts"):
        made(stream).run(frame)
    with raising(RowTypeError, column="ts"):
        made(stream).run(frame, batches=2)


@pytest.mark.parametrize(
    ("columns", "column", "word"),
    [
        ("card string, ts timestamp, value bigint", "key", ""),
        ("key string, value bigint", "ts", ""),
        ("key string, ts date, value bigint", "ts", "date"),
        ("key string, ts timestamp_ntz, value bigint", "ts", "zone"),
        ("key string, ts timestamp, value bigint, __slot int", "__slot", ""),
        ("key string, ts timestamp, value bigint, __Time int", "__Time", ""),
        ("key string, ts timestamp, value bigint, v variant", "v", "variant"),
        ("key string collate UNICODE_CI, ts timestamp, value bigint", "key", "collate"),
        ("key map<string,int>, ts timestamp, value bigint", None, "map<string,int>"),
    ],
)
def test_columns_are_checked_before_anything_runs(stream: Stream, columns: str, column: str | None, word: str) -> None:
    """Catches: a column that is missing, of the wrong type or in the way, found out in a task, or never."""
    stream.schema = columns
    with raising(StateDeclarationError, word, column=column):
        stream.start(made(stream))
    with raising(StateDeclarationError, word, column=column):
        made(stream).run(stream.static())


def test_what_makes_no_pipeline_is_refused_when_it_is_built(stream: Stream) -> None:
    """Catches: a mistake that is found out by the first batch at night."""
    pipeline = stream.pipeline()
    with raising(StateDeclarationError, operator="totals", option="key_by"):
        pipeline.process("totals", Totals(), TOTALS)
    with raising(StateDeclarationError, operator="totals", option="key_by"):
        pipeline.event_time("ts").process("totals", Totals(), TOTALS)
    minutes = es.TumblingEventTimeWindows.of("1 minute")
    with raising(StateDeclarationError, operator="n"):
        pipeline.event_time("ts").aggregate("n", n=es.count())
    with raising(StateDeclarationError, operator="n"):
        pipeline.event_time("ts").window(minutes).aggregate("n", n=es.count())
    timed = pipeline.key_by("key").event_time("ts")
    with raising(StateDeclarationError, option="window_all"):
        timed.window_all(minutes)
    with raising(StateDeclarationError, option="emit"):
        timed.aggregate("n", n=es.count(), emit="closed")
    with raising(StateDeclarationError, option="aggregates"):
        timed.aggregate("n")
    with raising(StateDeclarationError, option="n"):
        timed.window(minutes).aggregate("n", n=1)  # type: ignore[call-overload]
    with raising(StateDeclarationError, option="schema"):
        timed.window(minutes).aggregate("n", schema=es.count())
    with raising(StateDeclarationError, operator="n", column="nothing"):
        timed.aggregate("n", n=es.sum("nothing")).sink(Kept()).run(stream.static())
    with raising(StateDeclarationError, operator="totals", expected="an instance"):
        pipeline.key_by("key").process("totals", Totals, TOTALS)  # type: ignore[arg-type]
    with raising(StateDeclarationError, option="key_by", found=("key", "key")):
        pipeline.key_by("key", "key")
    with raising(StateDeclarationError, option="sink"):
        stream.start(pipeline.key_by("key").process("totals", Totals(), TOTALS))
    with raising(StateDeclarationError, option="process"):
        pipeline.sink(Kept()).run(stream.static())
    with raising(StateDeclarationError, found=["totals", "totals"]):
        stage = pipeline.key_by("key").process("totals", Totals(), EVENTS)
        stage.key_by("key").process("totals", Totals(), TOTALS)
    with raising(StateDeclarationError, column="card"):
        pipeline.key_by("key").process("totals", Totals(), TOTALS).key_by("card").process("more", Totals(), TOTALS)
    with raising(StateDeclarationError, option="side_sink", found="late"):
        pipeline.key_by("key").process("totals", Totals(), TOTALS).side_sink("late", Kept())
    with raising(StateDeclarationError, option="sink"):
        pipeline.sink("a table")  # type: ignore[arg-type]
    with raising(StateDeclarationError, option="parallelism"):
        stream.pipeline(parallelism=0)
    with raising(StateDeclarationError, option="state_backend"):
        es.Pipeline("job", "a path")  # type: ignore[arg-type]
    with raising(StateDeclarationError, option="event_time"):
        pipeline.key_by("key").window(es.TumblingEventTimeWindows.of("1 minute"))


@pytest.mark.reliability(30)
def test_the_zone_of_the_session_changes_nothing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: timestamps that are shifted by the session's zone on the way in, in state, or on the way out."""
    spark = stream.spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    given = events(60)
    kept = Kept()
    frame = spark.createDataFrame(given, EVENTS)
    assert [row[1] for row in rows_of(frame)] == [row[1] for row in given]
    stage = stream.pipeline().key_by("key").event_time("ts").process("bursts", Bursts(), BURSTS).sink(kept)
    stage.run(frame, batches=2)
    assert sorted(kept.rows) == bursts(given)


@pytest.mark.reliability(30)
def test_wall_times_are_of_the_zone_that_was_named(stream: Stream) -> None:
    """Catches: wall times that are read, ordered or cut in the session's zone, whose clock skips an hour in between."""
    spark = stream.spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    night = datetime.datetime(2026, 3, 8, 1, 30)  # New York has no 2:00 to 3:00 that night, Berlin has
    moments = [night + datetime.timedelta(minutes=5 * n) for n in range(24)]
    frame = spark.createDataFrame(
        [("a", moment, n) for n, moment in enumerate(moments)], "key string, ts timestamp_ntz, value bigint"
    )
    kept = Kept()
    stage = stream.pipeline().key_by("key").event_time("ts", zone="Europe/Berlin")
    progress = (
        stage.process("seen", Seen(), "value bigint, at timestamp, wall timestamp_ntz")
        .sink(kept)
        .run(frame.orderBy(frame.value.desc()), batches=4)
    )
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    assert kept.rows == [
        (n, moment.replace(tzinfo=berlin).astimezone(datetime.UTC), moment) for n, moment in enumerate(moments)
    ]
    assert sum(one.late_rows for one in progress) == 0


@pytest.mark.parametrize(
    ("zone", "nights"),
    [
        ("Europe/Berlin", ["2026-03-29 01:00", "2026-10-25 01:00"]),
        ("America/New_York", ["2026-03-08 01:00", "2026-11-01 00:00"]),
        ("Australia/Lord_Howe", ["2026-04-05 01:00", "2026-10-04 01:00"]),
    ],
)
def test_spark_orders_a_changed_clock_as_slots_do(stream: Stream, zone: str, nights: list[str]) -> None:
    """Catches: rows that Spark sorts by another moment than the slot takes them for, where a clock skips or repeats."""
    steps = [datetime.timedelta(minutes=5 * number, microseconds=number) for number in range(40)]
    walls = [datetime.datetime.fromisoformat(night) + step for night in nights for step in steps]
    frame = stream.spark.createDataFrame([(wall,) for wall in walls], "ts timestamp_ntz").coalesce(1)
    found = [row.micros for row in frame.selectExpr(f"{event_micros('ts', zone)} as micros").collect()]
    input = KeyedInput("key string, ts timestamp_ntz", ["key"], event_time="ts", zone=zone)
    batch = batch_of([("a", wall) for wall in walls], input.row_type)
    keys = KeySchema.from_python(str)
    assert found == list(input.read(batch, keys, keys.key_grouper(128)).times or ())


class Ends(es.KeyedProcessFunction):
    """Tells of a burst at the end of its minute."""

    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.timers.register_event_time("end", row.last + datetime.timedelta(minutes=1))

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Any]:
        yield ctx.key, timer.time


@pytest.mark.long
def test_event_time_timers_need_an_event_time_somewhere(stream: Stream) -> None:
    """Catches: timers that never fire, and leak; a stage that is refused though it follows another's event time."""
    stream.add(events(30, keys=3))
    kept = Kept()
    with raising(UserFunctionError, option="event_time"):
        stream.pipeline().key_by("key").process("bursts", Bursts(), BURSTS).sink(kept).run(stream.static())
    first = stream.pipeline().key_by("key").event_time("ts").process("bursts", Bursts(), BURSTS)
    first.key_by("key").process("ends", Ends(), "key string, end timestamp").sink(kept).run(stream.static())
    minute = datetime.timedelta(minutes=1)
    assert sorted(kept.rows) == sorted((key, last + minute) for key, _, last, _ in bursts(events(30, keys=3)))


class Seen(es.KeyedProcessFunction):
    """What it is told of a row's time."""

    last = es.value_state(datetime.datetime)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        assert row.ts.tzinfo is None
        assert self.last.value() is None or self.last.value() < row.ts
        self.last.update(row.ts)
        yield row.value, ctx.timestamp, row.ts


class Echo(es.KeyedProcessFunction):
    """Keeps rows of many types in state, and gives back those of the batch before."""

    amount = es.value_state(decimal.Decimal)
    day = es.value_state(datetime.date)
    raw = es.value_state(bytes)
    names = es.value_state(list[str])

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        if self.amount.value() is not None:
            yield (
                row.key, self.amount.value(), self.day.value(), self.raw.value(), self.names.value(),
                (row.place.x, row.place.name), row.counts,
            )  # fmt: skip
        self.amount.update(row.amount)
        self.day.update(row.day)
        self.raw.update(row.raw)
        self.names.update(row.names)


def test_columns_of_all_types(stream: Stream) -> None:
    """Catches: a type that arrives changed, in the function, in state, or at the sink."""
    columns = (
        "key decimal(10,2), amount decimal(20,5), day date, raw binary, names array<string>, "
        "place struct<x: double, name: string>, counts map<string,int>"
    )
    one = (decimal.Decimal("1.50"), decimal.Decimal("3.14159"), datetime.date(2026, 3, 1), b"\x00\xff", ["a", "b"])
    other: tuple[Any, ...] = (decimal.Decimal("1.50"), decimal.Decimal("-2.00000"), datetime.date(1969, 1, 1), b"", [])
    kept = Kept()
    pipeline = stream.pipeline().key_by("key").process("echo", Echo(), columns).sink(kept)
    for batch, row in enumerate((one, other)):
        pipeline(stream.spark.createDataFrame([(*row, (1.5, "here"), {"n": 1})], columns), batch)
    ((key, amount, day, raw, names, place, counts),) = kept.rows
    assert (key, amount, day, bytes(raw), names, tuple(place), counts) == (*one, (1.5, "here"), {"n": 1})


def test_keys_of_several_columns_and_numbers(stream: Stream) -> None:
    """Catches: a key group that Spark and Python compute differently; 0.0 and -0.0 as two keys."""
    rows = [(n % 3, d, "é" if n % 2 else "e", n) for n in range(60) for d in (0.0, -0.0, 1.5)]
    kept = Kept()
    frame = stream.spark.createDataFrame(rows, "a int, b double, c string, value bigint")
    stage = stream.pipeline(parallelism=3).key_by("a", "b", "c")
    stage.process("sum", Sum(), "a int, b double, c string, total bigint, rows bigint").sink(kept).run(frame)
    expected: dict[Any, list[int]] = {}
    for a, b, c, value in rows:
        expected.setdefault((a, b, c), []).append(value)
    last = {(a, b, c): (total, count) for a, b, c, total, count in sorted(kept.rows, key=lambda row: row[4])}
    assert last == {key: (sum(values), len(values)) for key, values in expected.items()}


class Sum(es.KeyedProcessFunction):
    """Adds up."""

    total = es.value_state(int, default=0)
    rows = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.total.update(self.total.value() + row.value)
        self.rows.update(self.rows.value() + 1)
        yield (*ctx.key, self.total.value(), self.rows.value())
