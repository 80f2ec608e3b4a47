"""Aggregates in columns against the same aggregates row by row: the same partial batches, results, counts and state."""

from __future__ import annotations

import contextlib
import datetime
import math
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate import HeapKeyedStateBackend, KeySchema
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import RowTypeError, StateTypeError
from emberstate.runtime.aggregates import names as es
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.partials import PartialRows
from emberstate.runtime.aggregates.running import RECORDS, RunningAggregates
from emberstate.runtime.aggregates.spec import TIME, AggregateSpec
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.columns import KEY_GROUP_COLUMN
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import TransactionResult
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.times import from_micros
from tests.effort import examples

INPUT = "card string, n int, amount double, small float, flag boolean, price decimal(6,2), day date, ts timestamp"
AGGREGATES = {
    "rows": es.count(),
    "amounts": es.count("amount"),
    "total": es.sum("n"),
    "sum": es.sum("amount"),
    "small": es.sum("small"),
    "least": es.min("n"),
    "most": es.max("amount"),
    "lowest": es.min("amount"),
    "mean": es.mean("n"),
    "average": es.mean("amount"),
    "first": es.first("n"),
    "last": es.last("amount"),
    "latest": es.last("flag"),
    "any": es.any("flag"),
    "prices": es.sum("price"),
    "price": es.mean("price"),
    "word": es.max("card"),
    "when": es.last("ts"),
    "day": es.min("day"),
    "first_day": es.first("day"),
}
GROUPS = 4

ints = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
floats = st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, math.inf, -1.5, 0.1, 1e300]))
smalls = st.one_of(st.none(), st.floats(width=32))
flags = st.one_of(st.none(), st.booleans())
prices = st.one_of(st.none(), st.decimals(-9999, 9999, places=2))
days = st.one_of(st.none(), st.dates())
moments = st.integers(0, 40)
rows = st.tuples(st.sampled_from("abcdef"), ints, floats, smalls, flags, prices, days, moments)
transactions = st.lists(st.lists(st.lists(rows, max_size=12), max_size=3), max_size=5)


@contextlib.contextmanager
def row_by_row() -> Iterator[None]:
    """Keep the stage from using columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningAggregates, "_in_columns", lambda self, ctx: None)
        yield


def spec_of(input: str = INPUT, keys: tuple[str, ...] = ("card",)) -> AggregateSpec:
    return AggregateSpec.of(AGGREGATES, input, keys, event_time="ts")


def make_operator(spec: AggregateSpec, schema: KeySchema) -> KeyedOperator:
    input = KeyedInput(spec.partial, spec.keys, event_time=TIME)
    backend = HeapKeyedStateBackend(schema, max_parallelism=GROUPS)
    operator = KeyedOperator(
        "totals", aggregate_function(spec), backend, inputs=[input], output=spec.output, out_of_orderness="5 seconds"
    )
    operator.open()
    return operator


def partial_batch(spec: AggregateSpec, schema: KeySchema, rows: list[tuple[Any, ...]]) -> Any:
    """Partial rows with their key groups, sorted by time."""
    made = []
    for row in sorted(rows, key=lambda row: row[-1]):
        micros = row[-1] * 1_000_000
        whole = (*row[:-1], from_micros(micros))
        partial = tuple(PartialRows(spec).of(whole, micros))
        keys = partial[: len(spec.keys)]
        made.append((*partial, schema.key_group(keys[0] if len(keys) == 1 else keys, GROUPS)))
    columns = [*spec.partial.columns, Column(KEY_GROUP_COLUMN, DataType("int"), nullable=False)]
    return batch_of(made, RowType(tuple(columns)))


def run(operator: KeyedOperator, batches: list[Any], watermark: int) -> TransactionResult:
    operator.begin(processing_time=0, watermark=watermark)
    for batch in batches:
        operator.process_batch(batch)
    return operator.end()


def comparable(value: Any) -> str:
    """NaN equals NaN; the sign of a zero counts."""
    return repr(tuple(value))


def content(operator: KeyedOperator) -> list[str]:
    table = operator.backend.registered_kv_states[RECORDS]
    return sorted(repr(entry) for entry in table)  # type: ignore[attr-defined]


@settings(max_examples=examples(120), deadline=None)
@given(transactions=transactions, fail=st.integers(0, 5))
def test_columns_equal_rows(transactions: list[list[list[tuple[Any, ...]]]], fail: int) -> None:
    """Catches: a fold, a result, a count or the order of keys that differs between the two ways; state that a failed
    attempt leaves behind."""
    spec, schema = spec_of(), KeySchema.from_python(str)
    with row_by_row():
        plain = make_operator(spec, schema)
    columns = make_operator(spec, schema)
    assert columns._runner.takes_batches and not plain._runner.takes_batches
    for number, batches in enumerate(transactions):
        made = [partial_batch(spec, schema, rows) for rows in batches]
        watermark = number * 7_000_000
        if number == fail:
            with columns.snapshot() as before:
                run(columns, made, watermark)
                columns.roll_back(before)
        with row_by_row():
            expected = run(plain, made, watermark)
        found = run(columns, made, watermark)
        assert list(map(comparable, found.main)) == list(map(comparable, expected.main))
        assert (found.rows, found.late_rows, found.late_rows_dropped, found.max_event_time) == (
            expected.rows,
            expected.late_rows,
            expected.late_rows_dropped,
            expected.max_event_time,
        )
        assert content(columns) == content(plain)
        columns.check_invariants()


def test_single_rows_and_batches_in_one_transaction() -> None:
    """Catches: a key that is emitted twice, or not at all, because it came both ways."""
    spec, schema = spec_of(), KeySchema.from_python(str)
    operator = make_operator(spec, schema)
    one = ("a", 1, 1.0, None, None, None, None, 3)
    operator.begin(processing_time=0, watermark=0)
    operator.process_batch(partial_batch(spec, schema, [one, ("b", 1, 1.0, None, None, None, None, 4)]))
    for key in "ac":
        whole = (key, *one[1:-1], from_micros(5_000_000))
        operator.process(key, PartialRows(spec).of(whole, 5_000_000), 5_000_000)
    assert [tuple(row[:2]) for row in operator.end().main] == [("a", 2), ("b", 1), ("c", 1)]


def test_keys_come_out_canonical() -> None:
    """Catches: a result with the form of a key that came, where another form of the same key is stored."""
    spec = spec_of(INPUT.replace("card string", "card double"))
    schema = KeySchema(("double",))
    operator = make_operator(spec, schema)
    batch = partial_batch(spec, schema, [(key, 1, None, None, None, None, None, 1) for key in (-0.0, 0.0, 2.5)])
    found = run(operator, [batch], 0).main
    assert [repr(tuple(row[:2])) for row in found] == ["(0.0, 2)", "(2.5, 1)"]


def test_a_key_that_is_none_is_not_the_users_fault() -> None:
    """Catches: an error of the key that is told as one of a function, which the user did not write."""
    spec = spec_of(INPUT.replace("card string", "card double"))
    schema = KeySchema(("double",))
    batch = partial_batch(spec, schema, [(2.5, 1, None, None, None, None, None, 1)])
    batch = batch.set_column(0, batch.schema.field(0), pa.array([math.nan]))
    operator = make_operator(spec, schema)
    operator.begin(processing_time=0, watermark=0)
    with pytest.raises(StateTypeError):
        operator.process_batch(batch)


def test_a_sum_that_is_too_large() -> None:
    """Catches: a sum that wraps around, or an error without the key and the aggregate."""
    spec = AggregateSpec.of({"total": es.sum("n")}, "card string, n bigint, ts timestamp", ["card"], event_time="ts")
    schema = KeySchema.from_python(str)
    operator = make_operator(spec, schema)
    batch = partial_batch(spec, schema, [("a", 1, 1), ("b", 2**63 - 1, 1), ("b", 1, 2)])
    with operator.snapshot() as before:
        operator.begin(processing_time=0, watermark=0)
        with pytest.raises(RowTypeError) as caught:
            operator.process_batch(batch)
        assert (caught.value.field, caught.value.key, caught.value.operator) == ("total", "b", "totals")
        operator.roll_back(before)
    assert content(operator) == []


def test_own_states_work_row_by_row() -> None:
    """Catches: an aggregate that is not in the record and that a stage in columns would leave out."""
    schema = KeySchema.from_python(str)
    for aggregate in (es.distinct("n"), es.top(2, "n", by="n"), es.collect("n")):
        spec = AggregateSpec.of({"x": aggregate}, "card string, n int, ts timestamp", ["card"], event_time="ts")
        assert not make_operator(spec, schema)._runner.takes_batches


@pytest.mark.parametrize("keys", [(), ("card", "n"), ("n", "card", "day")])
def test_other_keys(keys: tuple[str, ...]) -> None:
    """Catches: results whose keys are another row's, or in another order of columns; a hidden key that shows."""
    spec = AggregateSpec.of({"x": es.count(), "sum": es.sum("amount")}, INPUT, keys, event_time="ts")
    kinds = {"card": "string", "n": "int", "day": "date"}
    schema = KeySchema(tuple(kinds[key] for key in keys) or ("int",))
    chance = random.Random(3)
    day = datetime.date(2026, 1, 1)
    rows = [(chance.choice("abc"), chance.randrange(3), chance.random(), *[None] * 3, day, i) for i in range(60)]
    batches = [partial_batch(spec, schema, rows[:40]), partial_batch(spec, schema, rows[40:])]
    with row_by_row():
        expected = run(make_operator(spec, schema), batches, 0).main
    assert list(map(comparable, run(make_operator(spec, schema), batches, 0).main)) == list(map(comparable, expected))


@settings(max_examples=examples(40), deadline=None)
@given(first=st.lists(rows, max_size=12), second=st.lists(rows, max_size=12))
def test_state_goes_from_one_way_to_the_other(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> None:
    """Catches: a stage that goes on in columns where it worked row by row, or back, and has lost something."""
    spec, schema = spec_of(), KeySchema.from_python(str)
    batches = [partial_batch(spec, schema, first), partial_batch(spec, schema, second)]
    with row_by_row():
        plain = make_operator(spec, schema)
        run(plain, batches[:1], 0)
        expected = list(map(comparable, run(plain, batches[1:], 0).main))
    for ways in ((row_by_row, contextlib.nullcontext), (contextlib.nullcontext, row_by_row)):
        with ways[0]():
            before = make_operator(spec, schema)
            run(before, batches[:1], 0)
        with before.backend.snapshot() as snapshot:
            data = b"".join(BaseWriter(before.backend, snapshot))
        with ways[1]():
            after = make_operator(spec, schema)
            restore([StateFileReader.of_bytes(data, name="base")], after.backend)
            assert content(after) == content(before)
            assert list(map(comparable, run(after, batches[1:], 0).main)) == expected
