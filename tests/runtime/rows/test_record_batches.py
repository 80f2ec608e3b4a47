"""Record batches in and out: the same as row by row, for every key type; and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import zoneinfo
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from emberstate.errors import RowTypeError, StateDeclarationError, StateTypeError, UserFunctionError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedCoProcessFunction, KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.columns import INPUT_COLUMN, KEY_GROUP_COLUMN, ROW_COLUMNS
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.row import RowType
from tests.raising import raising
from tests.runtime.support import EPOCH, SECOND, at

CARDS = RowType.of("card string, amount double, ts timestamp")


class Spending(KeyedProcessFunction):
    """A sum per card, and a timer a second after each row."""

    total = value_state(float, default=0.0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update(self.total.value() + row.amount)
        ctx.timers.register_event_time("quiet", row.ts + dt.timedelta(seconds=1))
        yield row.card, self.total.value(), ctx.timestamp

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield {"at": timer.time, "card": ctx.key, "total": None}


def spending(**options: Any) -> KeyedOperator:
    operator = KeyedOperator(
        "spending",
        Spending(),
        HeapKeyedStateBackend(KeySchema.from_python(str)),
        inputs=[KeyedInput(CARDS, ["card"], event_time="ts")],
        output="card string, total double, at timestamp",
        **{"out_of_orderness": "1 second", **options},
    )
    operator.open()
    return operator


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 10), st.integers(0, 8).map(at)), max_size=20).map(
    lambda rows: sorted(rows, key=lambda row: row[2])
)


@given(ROWS, st.integers(0, 20), st.booleans())
def test_batches_are_as_rows(rows: list[Any], cut: int, with_groups: bool) -> None:
    """Catches: a fast path for batches that does something else than the rows one by one."""
    one, other = spending(late_output="late"), spending(late_output="late")
    group = KeySchema.from_python(str).key_grouper(128)
    for operator in (one, other):
        operator.begin(0, 2 * SECOND)
    for part in (rows[:cut], rows[cut:]):
        batch = batch_of(part, CARDS)
        if with_groups:
            groups = pa.array([group(row[0]) for row in part], pa.int64())
            batch = batch.append_column(KEY_GROUP_COLUMN, groups).select([3, 2, 0, 1])
        one.process_batch(batch)
    for row in rows:
        other.process(row[0], CARDS.row(*row), (row[2] - EPOCH) // dt.timedelta(microseconds=1))
    mine, theirs = one.end(), other.end()

    assert mine.main == theirs.main
    assert mine.outputs["late"].rows == theirs.outputs["late"].rows
    assert [batch.schema.names for batch in mine.outputs["main"].batches()][:1] in ([], [["card", "total", "at"]])
    for field in ("rows", "late_rows", "late_rows_dropped", "timers_fired", "max_event_time"):
        assert getattr(mine, field) == getattr(theirs, field), field


class ByKey(KeyedProcessFunction):
    """Says which rows came together."""

    count = value_state(int, default=0)

    def process_batch(self, key: Any, rows: list[Any], ctx: Any) -> Any:
        assert ctx.key == key
        self.count.update(self.count.value() + len(rows))
        yield key, [row.amount for row in rows], self.count.value(), ctx.timestamp
        if any(row.amount < 0 for row in rows):
            raise ValueError("negative")


def by_key() -> KeyedOperator:
    operator = KeyedOperator(
        "by-key",
        ByKey(),
        HeapKeyedStateBackend(KeySchema.from_python(str)),
        inputs=[KeyedInput(CARDS, ["card"], event_time="ts")],
    )
    operator.open()
    return operator


def test_rows_of_a_key_together() -> None:
    """Catches: rows out of order, of two keys in one call, or late ones among them."""
    operator = by_key()
    operator.begin(0, SECOND)
    operator.process_batch(
        batch_of([("a", 1.0, at(0)), ("b", 2.0, at(1)), ("a", 3.0, at(2)), ("a", 4.0, at(3))], CARDS)
    )
    operator.process("b", CARDS.row("b", 5.0, at(4)), 4 * SECOND)
    result = operator.end()

    assert result.main == [("b", [2.0], 1, at(1)), ("a", [3.0, 4.0], 2, at(3)), ("b", [5.0], 2, at(4))]
    assert (result.late_rows_dropped, result.rows) == (1, 5)


def test_errors_of_rows_together() -> None:
    """Catches: an error in process_batch without key and rows."""
    operator = by_key()
    operator.begin(0)
    with raising(UserFunctionError, r"ValueError: negative\n  key: 'a'\n  rows: ", operator=operator.name, key="a"):
        operator.process_batch(batch_of([("a", -1.0, at(0))], CARDS))


KEYS: list[tuple[str, list[Any]]] = [
    ("string", ["a", "ü", ""]),
    ("binary", [b"a", b""]),
    ("bigint", [0, -(2**63)]),
    ("int", [0, 2**31 - 1]),
    ("tinyint", [-128]),
    ("boolean", [True, False]),
    ("double", [0.5, -1.0]),
    ("float", [0.5]),
    ("date", [dt.date(2026, 1, 1)]),
    ("timestamp", [at(1), at(-1)]),
    ("timestamp_ntz", [dt.datetime(2026, 1, 1)]),
    ("decimal(10,2)", [decimal.Decimal("1.50"), decimal.Decimal("-0.01")]),
]


class Keys(KeyedProcessFunction):
    """Counts by key."""

    count = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.count.update(self.count.value() + 1)
        return ctx.key, self.count.value()


def keyed(row_type: str, columns: list[str], types: list[str], function: Any = None) -> KeyedOperator:
    backend = HeapKeyedStateBackend(KeySchema(types))
    operator = KeyedOperator("keys", function or Keys(), backend, inputs=[KeyedInput(row_type, columns)])
    operator.open()
    operator.begin(0)
    return operator


@pytest.mark.parametrize(("type_", "keys"), KEYS)
def test_key_types(type_: str, keys: list[Any]) -> None:
    """Catches: a key that is another one by batch than by itself (checked by its key group too)."""
    operator = keyed(f"k {type_}", ["k"], [type_])
    operator.process_batch(batch_of([(key,) for key in keys], RowType.of(f"k {type_}")))
    for key in keys:
        operator.process(key, (key,))
    out = operator.end().main

    assert out == [(key, 1) for key in keys] + [(key, 2) for key in keys]
    operator.check_invariants()


def test_composite_keys() -> None:
    """Catches: key columns in the schema's order instead of the key's."""
    operator = keyed("a int, x double, b string", ["b", "a"], ["string", "int"])
    operator.process_batch(
        batch_of([(1, 0.0, "x"), (2, 0.0, "x"), (1, 1.0, "x")], RowType.of("a int, x double, b string"))
    )

    assert operator.end().main == [(("x", 1), 1), (("x", 2), 1), (("x", 1), 2)]


def test_doubles_are_made_canonical() -> None:
    """Catches: two keys for 0.0 and -0.0, which Spark sends to one slot."""
    operator = keyed("k double", ["k"], ["double"])
    operator.process_batch(batch_of([(-0.0,), (0.0,)], RowType.of("k double")))

    assert [(str(key), count) for key, count in operator.end().main] == [("0.0", 1), ("0.0", 2)]


def test_wrong_key_groups_are_found() -> None:
    """Catches: rows that were routed by another hash, whose state would be lost at the next rescale."""
    batch = batch_of([("a",)] * 300, RowType.of("k string"))
    wrong = (KeySchema.from_python(str).key_group("a", 128) + 1) % 128
    operator = keyed("k string", ["k"], ["string"])
    with raising(StateDeclarationError, key="a", key_group=wrong):
        operator.process_batch(batch.append_column(KEY_GROUP_COLUMN, pa.array([wrong] * 300)))


@pytest.mark.parametrize(
    ("schema", "rows", "error", "message"),
    [
        (
            "k string, ts timestamp",
            [("a", at(0)), (None, at(0))],
            RowTypeError,
            "key column 'k' is null in row Row(k=None",
        ),
        ("k string, ts timestamp", [("a", None)], RowTypeError, "event time 'ts' is null in row Row(k='a'"),
        ("k string", [("a",)], RowTypeError, "a batch has no column 'ts'"),
        (
            "k string, ts timestamp_ntz",
            [],
            RowTypeError,
            "column 'ts' of a batch is timestamp_ntz, declared is timestamp",
        ),
        ("k bigint, ts timestamp", [(1, at(0))], RowTypeError, "column 'k' of a batch is bigint, declared is string"),
    ],
)
def test_refused_batches(schema: str, rows: list[Any], error: type[Exception], message: str) -> None:
    """Catches: a row without key or time that is dropped, or given those of another."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    source = KeyedInput("k string, ts timestamp", ["k"], event_time="ts")
    operator = KeyedOperator("op", Keys(), backend, inputs=[source])
    operator.open()
    operator.begin(0)
    with pytest.raises(error) as caught:
        operator.process_batch(batch_of(rows, RowType.of(schema)))
    assert message in str(caught.value)


def test_nan_is_no_key() -> None:
    """Catches: a key that equals nothing, so that each of its rows makes a new entry."""
    operator = keyed("k double", ["k"], ["double"])
    with raising(StateTypeError, "NaN"):
        batch = batch_of([(float("nan"),)], RowType.of("k double"))
        operator.process_batch(batch.append_column(KEY_GROUP_COLUMN, pa.array([0])))


def test_event_time_of_a_wall_clock() -> None:
    """Catches: a TIMESTAMP_NTZ taken for UTC, or one hour off where clocks are set back."""
    with raising(StateDeclarationError, "zone", column="ts"):
        KeyedInput("k string, ts timestamp_ntz", ["k"], event_time="ts")
    with raising(StateDeclarationError, "bigint", column="ts"):
        KeyedInput("k string, ts bigint", ["k"], event_time="ts")
    source = KeyedInput("k string, ts timestamp_ntz", ["k"], event_time="ts", zone="Europe/Berlin")
    walls = [dt.datetime(2026, 7, 1, 14), dt.datetime(2026, 10, 25, 2, 30), dt.datetime(2026, 12, 1, 13)]
    batch = batch_of([("a", wall) for wall in walls], source.row_type)
    schema = KeySchema.from_python(str)
    times = source.read(batch, schema, schema.key_grouper(128)).times
    assert times is not None

    assert [EPOCH + dt.timedelta(microseconds=time) for time in times] == [
        dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 10, 25, 0, 30, tzinfo=dt.UTC),  # the first of the two half past twos
        dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC),
    ]


@pytest.mark.parametrize(
    ("zone", "night"),
    [
        ("Europe/Berlin", dt.datetime(2026, 3, 29, 1)),
        ("Europe/Berlin", dt.datetime(2026, 10, 25, 1)),
        ("America/New_York", dt.datetime(2026, 3, 8, 1)),
        ("America/New_York", dt.datetime(2026, 11, 1, 0)),
        ("Australia/Lord_Howe", dt.datetime(2026, 10, 4, 1)),  # by half an hour
        ("Australia/Lord_Howe", dt.datetime(2026, 4, 5, 1)),
        ("Africa/Monrovia", dt.datetime(1972, 1, 6, 23)),  # by 44 and a half minutes
    ],
)
def test_a_clock_that_is_changed(zone: str, night: dt.datetime) -> None:
    """Catches: another rule than Python's, which is Spark's, for readings that a clock skips or shows twice."""
    source = KeyedInput("k string, ts timestamp_ntz", ["k"], event_time="ts", zone=zone)
    walls = [night + dt.timedelta(minutes=5 * number, microseconds=number) for number in range(48)]
    schema = KeySchema.from_python(str)
    batch = batch_of([("a", wall) for wall in walls], source.row_type)
    times = source.read(batch, schema, schema.key_grouper(128)).times
    assert times is not None
    expected = [wall.replace(tzinfo=zoneinfo.ZoneInfo(zone)).astimezone(dt.UTC) for wall in walls]
    assert [EPOCH + dt.timedelta(microseconds=time) for time in times] == expected


def test_an_output_of_the_wrong_type_in_a_batch() -> None:
    """Catches: a wrong output among ten thousand that is not named."""

    class Wrong(KeyedProcessFunction):
        def process_element(self, row: Any, ctx: Any) -> Any:
            yield row.k, "7" if row.k == "c" else 7

    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    operator = KeyedOperator("op", Wrong(), backend, inputs=[KeyedInput("k string", ["k"])], output="k string, n int")
    operator.open()
    operator.begin(0)
    with pytest.raises(RowTypeError) as caught:
        operator.process_batch(batch_of([("a",), ("b",), ("c",)], RowType.of("k string")))
    text = "operator 'op', output 'main' of test_an_output_of_the_wrong_type_in_a_batch.<locals>.Wrong: "
    assert str(caught.value) == f"{text}column n is int, found str ('7') in row ('c', '7')"


def test_an_operator_without_inputs_reads_no_batches() -> None:
    """Catches: a raw IndexError for an operator that was set up for rows alone."""
    operator = KeyedOperator("op", Keys(), HeapKeyedStateBackend(KeySchema.from_python(str)))
    operator.open()
    operator.begin(0)
    with raising(StateDeclarationError, operator="op"):
        operator.process_batch(batch_of([("a",)], RowType.of("k string")))


class Join(KeyedCoProcessFunction):
    """Orders and payments of one customer."""

    orders = map_state(int, float)

    def process_element1(self, row: Any, ctx: Any) -> Any:
        self.orders[row.order] = row.amount
        yield "order", row.order, ctx.timestamp

    def process_element2(self, row: Any, ctx: Any) -> Any:
        yield "payment", self.orders.get(row.order), ctx.timestamp

    def process_late_element2(self, row: Any, ctx: Any) -> Any:
        yield "late payment", self.orders.get(row.order), ctx.timestamp


ORDERS = KeyedInput("customer string, order int, amount double, ts timestamp", ["customer"], event_time="ts")
PAYMENTS = KeyedInput("order int, payer string, at timestamp", ["payer"], event_time="at")


def join(**options: Any) -> KeyedOperator:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    operator = KeyedOperator("join", Join(), backend, inputs=[ORDERS, PAYMENTS], **options)
    operator.open()
    return operator


def test_two_inputs() -> None:
    """Catches: rows of two inputs that do not share state, or come out of order, or under the other's columns."""
    events = [
        (0, ("c", 1, 9.5, at(1))),
        (1, (1, "c", at(2))),
        (1, (2, "c", at(3))),
        (0, ("d", 2, 1.5, at(4))),
        (1, (2, "d", at(5))),
        (1, (1, "c", at(0))),
        (0, ("c", 3, 0.0, at(0))),
    ]
    structs = [
        pa.array(
            [dict(zip(source.row_type.names, row, strict=True)) if number == which else None for which, row in events],
            pa.struct(batch_of([], source.row_type).schema),
        )
        for number, source in enumerate((ORDERS, PAYMENTS))
    ]
    batch = pa.record_batch(
        {
            INPUT_COLUMN: pa.array([which for which, _ in events], pa.int8()),
            **dict(zip(ROW_COLUMNS, structs, strict=True)),
        }
    )
    by_batch, by_row = join(), join()
    by_batch.begin(0, SECOND)
    by_batch.process_batch(batch)
    by_row.begin(0, SECOND)
    for which, row in events:
        source = (ORDERS, PAYMENTS)[which]
        made: Any = source.row_type.row(*row)
        key, time = (made.customer, made.ts) if which == 0 else (made.payer, made.at)
        by_row.process(key, made, int((time - EPOCH).total_seconds() * SECOND), input=which)
    result = by_batch.end()

    assert result.main == by_row.end().main
    assert result.main == [
        ("order", 1, at(1)),
        ("payment", 9.5, at(2)),
        ("payment", None, at(3)),
        ("order", 2, at(4)),
        ("payment", 1.5, at(5)),
        ("late payment", 9.5, at(0)),
    ]
    assert (result.late_rows, result.late_rows_dropped) == (2, 1)


def test_two_inputs_need_a_late_output_of_both() -> None:
    """Catches: late rows of the second input written under the first one's columns."""
    with raising(StateDeclarationError, "late rows", operator="join"):
        join(late_output="late")
    with raising(StateDeclarationError, "2 inputs", operator="join"):
        KeyedOperator("join", Join(), HeapKeyedStateBackend(KeySchema.from_python(str)), inputs=[ORDERS])


def test_errors_name_the_method_of_the_input() -> None:
    """Catches: an error of the second input blamed on the first."""
    operator = join()
    operator.begin(0)
    with raising(UserFunctionError, "process_element2", operator="join", key="c"):
        operator.process("c", ("no row",), 0, input=1)
