"""What each aggregate results in: types by input types, nulls, NaN, zeros, ties, and sums that are too great."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.testing import Harness
from tests.raising import raising
from tests.testing.support import at

NAN = math.nan


def result(aggregate: Aggregate, type_: str, values: list[Any]) -> Any:
    """The result over the rows of one key, whose times are those of the list; a batch for each two of them."""
    with Harness.of_aggregates(
        {"x": aggregate}, schema=f"k string, ts timestamp, v {type_}", key="k", event_time="ts"
    ) as harness:
        rows = [("ann", at(second), value) for second, value in enumerate(values)]
        for start in range(0, len(rows), 2):
            harness.process_batch(rows[start : start + 2])
        harness.check_invariants()
        return harness.output[-1].x


@pytest.mark.parametrize(
    ("aggregate", "type_", "values", "expected"),
    [
        (es.count(), "int", [1, None, 3], 3),
        (es.count("v"), "int", [1, None, 3], 2),
        (es.count("v"), "int", [None], 0),
        (es.sum("v"), "int", [2**31 - 1, None, 1], 2**31),
        (es.sum("v"), "int", [None, None], None),
        (es.sum("v"), "bigint", [2**63 - 1, -1, 1], 2**63 - 1),
        (es.sum("v"), "bigint", [-(2**63), 0], -(2**63)),
        (es.sum("v"), "float", [0.5, 0.25], 0.75),
        (es.sum("v"), "double", [1.0, NAN, 2.0], NAN),
        (es.sum("v"), "double", [math.inf, 1.0], math.inf),
        (es.sum("v"), "decimal(4,2)", [Decimal("99.99"), Decimal("0.02"), None], Decimal("100.01")),
        (es.mean("v"), "tinyint", [1, 2, None], 1.5),
        (es.mean("v"), "double", [None], None),
        (es.mean("v"), "decimal(4,2)", [Decimal("1.00"), Decimal("1.00"), Decimal("1.01")], Decimal("1.003333")),
        (es.mean("v"), "decimal(4,2)", [Decimal("0.01"), Decimal("0.00")], Decimal("0.005000")),
        (es.min("v"), "double", [NAN, 1.0, None], 1.0),
        (es.min("v"), "double", [NAN, NAN], NAN),
        (es.max("v"), "double", [1.0, NAN, math.inf], NAN),
        (es.max("v"), "float", [None, -1.5], -1.5),
        (es.max("v"), "string", ["z", "é", "\U0001f600", "\uffff"], "\U0001f600"),
        (es.min("v"), "binary", [b"\x80", b"\x7f"], b"\x7f"),
        (es.min("v"), "boolean", [True, False], False),
        (es.max("v"), "timestamp", [at(5), at(7), None], at(7)),
        (es.max("v"), "interval day to second", [timedelta(1), timedelta(2)], timedelta(2)),
        (es.first("v"), "int", [None, 2, 3], None),
        (es.last("v"), "int", [1, 2, None], None),
        (es.first("v"), "array<int>", [[1, None], [2]], [1, None]),
        (es.any("v"), "boolean", [None, False, True], True),
        (es.any("v"), "boolean", [None, False], False),
        (es.any("v"), "boolean", [None, None], None),
        (es.distinct("v"), "double", [0.0, -0.0, NAN, NAN, None, 1.5], 3),
        (es.distinct("v"), "decimal(4,2)", [Decimal("1.5"), Decimal("1.50"), None], 1),
        (es.distinct("v"), "string", [None], 0),
        (es.distinct("v"), "timestamp", [at(1), at(1), at(2)], 2),
        (es.distinct("v"), "timestamp_ntz", [at(1).replace(tzinfo=None), at(1).replace(tzinfo=None)], 1),
        (es.distinct("v"), "date", [at(1).date(), at(2).date()], 1),
        (es.distinct("v"), "binary", [b"", b"a", b"a"], 2),
        (es.distinct("v"), "boolean", [True, False, None], 2),
        (es.distinct("v"), "interval day to second", [timedelta(1), timedelta(1)], 1),
        (es.collect("v"), "int", [3, None, 1, 3], [3, 1, 3]),
        (es.collect("v"), "int", [None], []),
        (es.top(2, by="v"), "double", [1.0, NAN, 7.0, None, 2.0], [(NAN,), (7.0,)]),
        (es.top(3, "ts", by="v"), "int", [1, 2, 1, 1], [(at(1), 2), (at(0), 1), (at(2), 1)]),
        (es.top(1, by="v"), "string", [None], []),
    ],
)
def test_results(aggregate: Aggregate, type_: str, values: list[Any], expected: Any) -> None:
    """Catches: a null that counts, a NaN that is lost or counted twice, a tie that the later row wins, a sum rounded

    or wrapped, an order of values that is not Spark's.
    """
    found = result(aggregate, type_, values)
    if isinstance(found, list):
        found = [tuple(one) if isinstance(one, tuple) else one for one in found]
    assert repr(found) == repr(expected)


@pytest.mark.parametrize(
    ("type_", "sum_type", "mean_type"),
    [
        ("tinyint", "bigint", "double"),
        ("bigint", "bigint", "double"),
        ("float", "double", "double"),
        ("decimal(10,2)", "decimal(20,2)", "decimal(14,6)"),
        ("decimal(38,36)", "decimal(38,36)", "decimal(38,38)"),
    ],
)
def test_types_follow_from_the_input(type_: str, sum_type: str, mean_type: str) -> None:
    """Catches: a result of another type than Spark's, or a key column retyped."""
    aggregates = {
        "n": es.count(), "s": es.sum("v"), "m": es.mean("v"), "lo": es.min("v"), "f": es.first("v"),
        "d": es.distinct("v"), "c": es.collect("v"), "t": es.top(1, "k", by="v"),
    }  # fmt: skip
    spec = AggregateSpec.of(aggregates, f"k smallint, v {type_}", ["k"])
    assert [column.type.name for column in spec.output.columns] == [
        "smallint", "bigint", sum_type, mean_type, type_, type_, "bigint", f"array<{type_}>",
        f"array<struct<k:smallint,v:{type_}>>",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("aggregate", "type_", "values"),
    [
        (es.sum("v"), "bigint", [2**63 - 1, 1]),
        (es.sum("v"), "bigint", [-(2**63), -1]),
        (es.mean("v"), "bigint", [2**63 - 1, 1]),
        (es.sum("v"), "decimal(38,0)", [Decimal(10**38 - 1), Decimal(1)]),
    ],
)
def test_a_sum_too_great_says_whose(aggregate: Aggregate, type_: str, values: list[Any]) -> None:
    """Catches: a sum that wraps around or is rounded, and an error that does not say of which stage, key, aggregate."""
    with Harness.of_aggregates({"total": aggregate}, schema=f"k string, v {type_}", key="k", name="sums") as harness:
        harness.process(("ann", values[0]), ("bob", values[0]))
        with raising(RowTypeError, operator="sums", key="ann", column="v", field="total"):
            harness.process(("ann", values[1]))
        assert harness.process(("bob", None))[0].k == "bob"


@pytest.mark.parametrize(
    ("aggregates", "column"),
    [
        ({"x": es.sum("word")}, "word"),
        ({"x": es.mean("flag")}, "flag"),
        ({"x": es.any("v")}, "v"),
        ({"x": es.max("tags")}, "tags"),
        ({"x": es.distinct("tags")}, "tags"),
        ({"x": es.top(2, "v", by="tags")}, "tags"),
        ({"x": es.sum("nothing")}, "nothing"),
        ({"k": es.count()}, "k"),
        ({"K": es.count()}, "k"),
        ({"n": es.count(), "N": es.sum("v")}, "n"),
    ],
)
def test_what_cannot_be_aggregated_is_rejected(aggregates: Mapping[str, Aggregate], column: str) -> None:
    """Catches: a declaration that fails only when the first row comes, or two names that are one to Spark."""
    schema = "k string, v int, word string, flag boolean, tags array<string>"
    with raising(StateDeclarationError, column=column):
        AggregateSpec.of(aggregates, schema, ["k"])


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"aggregates": {}}, "aggregates"),
        ({"aggregates": {"__n": es.count()}}, "aggregates"),
        ({"aggregates": {"class": es.count()}}, "aggregates"),
        ({"aggregates": {"n": "count"}}, "n"),
        ({"emit": "closed"}, "emit"),
        ({"emit": "often"}, "emit"),
        ({"window": es.window(es.TumblingEventTimeWindows.of("1 hour"))}, "event_time"),
        ({"window": es.window(es.GlobalWindows(), trigger=es.CountTrigger(2)), "emit": "changed"}, "emit"),
    ],
)
def test_a_stage_that_cannot_work_is_rejected(options: dict[str, Any], option: str) -> None:
    """Catches: a stage that never emits, or a name that no column can have."""
    aggregates = options.pop("aggregates", {"n": es.count()})
    with raising(StateDeclarationError, option=option):
        AggregateSpec.of(aggregates, "k string, ts timestamp", ["k"], **options)


def test_arguments_are_checked() -> None:
    """Catches: top(0), every of nothing, or a function that is no AggregateFunction, found out late."""
    with raising(StateDeclarationError, option="n"):
        es.top(0, "k", by="v")
    with raising(StateDeclarationError, option="every"):
        es.every("0 seconds")
    with raising(StateDeclarationError, option="function"):
        es.fold(len, result="int")  # type: ignore[arg-type]
