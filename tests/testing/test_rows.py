"""Rows through a harness: in, out, and all or nothing."""

from __future__ import annotations

import datetime
import decimal
import subprocess
import sys
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import (
    LifecycleError,
    RowTypeError,
    StateDeclarationError,
    StateTypeError,
    UserFunctionError,
)
from emberstate.runtime.rows.row import RowType
from emberstate.testing import Harness, KeyedInput
from tests.patience import PATIENCE
from tests.raising import raising
from tests.testing.support import at, pay, totals


def test_it_needs_no_spark() -> None:
    """Catches: a harness that imports pyspark, which needs a JVM to be of use."""
    code = "import sys, emberstate.testing; sys.exit('pyspark' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == 0


def test_rows_in_every_form(state_backend: StateBackend) -> None:
    """Catches: a dict taken by position, or rows that lose their names on the way."""
    as_tuple = ("ann", "s", 1.0, at(2))
    as_row = RowType.of("card string, shop string, amount double, ts timestamp").row(*as_tuple)
    with totals(state_backend=state_backend) as harness:
        by_name = {"ts": at(1), "amount": 1.0, "shop": "s", "card": "ann"}
        made = harness.process(by_name, as_tuple, as_row)

        assert [row.total for row in made] == [1.0, 2.0, 3.0]
        assert made == [("ann", "sum", 1.0), ("ann", "sum", 2.0), ("ann", "sum", 3.0)]
        assert harness.output == made


def test_take_gives_each_row_once() -> None:
    """Catches: rows taken twice, or lost between two takes."""
    with totals() as harness:
        harness.process(pay("a", 1, 0), pay("b", 2, 0))
        assert [row.card for row in harness.take()] == ["a", "b"]
        assert harness.take() == []
        harness.process(pay("c", 1, 0))
        assert [row.card for row in harness.take()] == ["c"]
        assert len(harness.output) == 3


class EveryType(es.KeyedProcessFunction):
    """Puts out what came in."""

    last = es.value_state(decimal.Decimal)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.last.update(row.d)
        yield tuple(row)


def test_rows_go_through_arrow_both_ways() -> None:
    """Catches: values handed through as they are, so that a type that Spark would change is not seen."""
    schema = "k int, d decimal(10,2), t timestamp, l array<int>, m map<string,double>, s struct<a: int>, f float"
    zone = datetime.timezone(datetime.timedelta(hours=2))
    row = (1, decimal.Decimal("1.5"), at(0).astimezone(zone), (1, None), {"x": 1}, {"a": 5}, 0.1)
    with Harness(EveryType(), schema=schema, key="k", output=schema) as harness:
        (out,) = harness.process(row)

    assert out.d == decimal.Decimal("1.50") and str(out.d) == "1.50"
    assert out.t == at(0) and out.t.tzinfo == datetime.UTC
    assert out.l == [1, None] and out.m == {"x": 1.0} and out.s.a == 5
    assert out.f != 0.1 and out.f == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"amount": "5"}, "amount"),
        ({"ts": datetime.datetime(2026, 1, 1)}, "ts"),
        ({"ts": None}, "ts"),
        ({"card": None}, "card"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(change: dict[str, Any], column: str) -> None:
    """Catches: a row that Spark could never deliver, handed to the function all the same."""
    with totals() as harness:
        with raising(RowTypeError, column=column):
            harness.process({**pay("a", 1, 0), **change})
        assert harness.process(pay("a", 1, 0)) == [("a", "sum", 1.0)]


class WrongOutput(es.KeyedProcessFunction):
    """Puts out whatever its input says."""

    seen = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.seen.update(self.seen.value() + 1)
        yield "fine"[:4], 1
        yield {"int": (1, 1), "short": ("x",), "none": None, "good": ("x", 2)}[row.what]


@pytest.mark.reliability(28)
@pytest.mark.parametrize("what", ["int", "short", "none"])
def test_a_wrong_output_undoes_its_element(what: str, state_backend: StateBackend) -> None:
    """Catches: half of an element's outputs, or its state, left behind when another of its outputs is refused."""
    options: dict[str, Any] = {"schema": "k string, what string", "key": "k", "output": "a string, n bigint"}
    with Harness(WrongOutput(), state_backend=state_backend, **options) as harness:
        harness.process(("k", "good"))
        with pytest.raises(RowTypeError):
            harness.process(("k", what))

        assert harness.state("seen", "k") == 1
        assert len(harness.output) == 2
        assert harness.process(("k", "good")) == [("fine", 1), ("x", 2)]
        assert harness.state("seen", "k") == 2


@pytest.mark.reliability(28)
def test_an_element_is_all_or_nothing(state_backend: StateBackend) -> None:
    """Catches: a row that failed half-way and left a value, a list element, a map entry, a timer or an output."""
    with totals(state_backend=state_backend, parallelism=3) as harness:
        harness.process(pay("a", 1, 0), pay("b", 5, 1))
        timers, output = harness.timers(), harness.output
        with pytest.raises(UserFunctionError, match="no such amount") as raised:
            harness.process(pay("a", -1, 30, shop="new"))

        assert isinstance(raised.value.__cause__, ValueError)
        assert (harness.state("total", "a"), harness.state("recent", "a")) == (1.0, [1.0])
        assert harness.state("shops", "a") == {"s": 1}
        assert (harness.timers(), harness.output) == (timers, output)
        assert harness.process(pay("a", 2, 2)) == [("a", "sum", 3.0)]
        assert harness.statistics().job.roll_backs == 1
        harness.check_invariants()


def test_a_batch_is_all_or_nothing_in_all_slots() -> None:
    """Catches: slots that kept their part of a batch that failed in another slot."""
    cards = [f"c{number}" for number in range(20)]
    with totals(parallelism=4) as harness:
        harness.process_batch([pay(card, 1, 0) for card in cards])
        with pytest.raises(UserFunctionError):
            harness.process_batch([pay(card, -1 if card == "c7" else 1, 1) for card in cards])

        assert [harness.state("total", card) for card in cards] == [1.0] * 20
        assert {row.total for row in harness.process_batch([pay(card, 1, 1) for card in cards])} == {2.0}


class Remembers(es.KeyedProcessFunction):
    """Keeps a cache in an attribute, which it must not do with what is state."""

    def __init__(self) -> None:
        self.cache: list[str] = []

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.cache.append(row.k)
        if row.k == "bad":
            raise ValueError
        yield (len(self.cache),)


def test_a_failed_element_leaves_nothing_in_attributes() -> None:
    """Catches: the function object of a failed attempt, used again with what it set as attributes."""
    prototype = Remembers()
    with Harness(prototype, schema="k string", key="k", output="n int") as harness:
        assert harness.process(("a",), ("b",)) == [(1,), (2,)]
        with pytest.raises(UserFunctionError):
            harness.process(("bad",))
        assert harness.process(("c",)) == [(1,)]
    assert prototype.cache == []


class InOrder(es.KeyedProcessFunction):
    """Puts out rows as they come."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield tuple(row)


def test_a_batch_is_sorted_by_event_time() -> None:
    """Catches: rows of a batch in the order of the test, or rows of one time in another order than given."""
    schema = "k string, n int, ts timestamp"
    rows = [("k", 1, at(3)), ("k", 2, at(1)), ("k", 3, at(3)), ("k", 4, at(2)), ("k", 5, at(1))]
    with Harness(InOrder(), schema=schema, key="k", event_time="ts", output=schema) as harness:
        assert [row.n for row in harness.process_batch(rows)] == [2, 5, 4, 1, 3]
    with Harness(InOrder(), schema=schema, key="k", output=schema) as harness:
        assert [row.n for row in harness.process_batch(rows)] == [1, 2, 3, 4, 5]


class Composite(es.KeyedProcessFunction):
    """Counts by two columns."""

    seen = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.seen.update(self.seen.value() + 1)


def test_keys_of_several_columns() -> None:
    """Catches: a key that is looked up otherwise than it is stored."""
    with Harness(Composite(), schema="a string, b int", key=["a", "b"], parallelism=2) as harness:
        harness.process(("x", 1), ("x", 2), ("x", 1))

        assert harness.keys("seen") == [("x", 1), ("x", 2)]
        assert harness.state("seen", ("x", 1)) == 2
        with pytest.raises(StateTypeError):
            harness.state("seen", "x")


class Sides(es.KeyedProcessFunction):
    """Puts rows into a side output, and counts."""

    def process_element(self, row: Any, ctx: Any) -> None:
        ctx.output("odd" if row.n % 2 else "even", (row.n,))
        ctx.count("rows")
        if row.n == 13:
            raise ValueError


def test_side_outputs_and_counters() -> None:
    """Catches: side rows in the wrong output, or counts of an element that was undone."""
    sides = {"odd": "n int", "even": "n int"}
    with Harness(Sides(), schema="n int", key="n", side_outputs=sides) as harness:
        harness.process((1,), (2,), (3,))
        with pytest.raises(UserFunctionError):
            harness.process((13,))

        assert (harness.side_output("odd"), harness.side_output("even")) == ([(1,), (3,)], [(2,)])
        assert harness.counters == {"rows": 3}
        with raising(StateDeclarationError, expected=["even", "odd"], found="other"):
            harness.side_output("other")


def test_an_output_without_a_schema_takes_no_rows() -> None:
    """Catches: rows that would have nowhere to go in Spark, accepted here."""
    with (
        Harness(InOrder(), schema="n int", key="n") as harness,
        raising(StateDeclarationError, option="output"),
    ):
        harness.process((1,))


class Joined(es.KeyedCoProcessFunction):
    """Joins two inputs."""

    left = es.list_state(str)

    def process_element1(self, row: Any, ctx: Any) -> None:
        self.left.add(row.what)

    def process_element2(self, row: Any, ctx: Any) -> Any:
        if row.n < 0:
            raise ValueError("below zero")
        yield row.id, ",".join(self.left.get()), row.n


def joined(**options: Any) -> Harness:
    """A harness with two inputs of different columns."""
    return Harness(
        Joined(),
        schema="k string, what string, ts timestamp",
        key="k",
        event_time="ts",
        second=KeyedInput("id string, n int, t timestamp", ["id"], event_time="t"),
        output="k string, left string, n int",
        **options,
    )


def test_two_inputs(state_backend: StateBackend) -> None:
    """Catches: rows of the wrong input's method, two inputs that are not in one order of time, or a failed row of
    the second that leaves something."""
    with joined(state_backend=state_backend, parallelism=2) as harness:
        harness.process(("k", "a", at(0)))
        assert harness.process2(("k", 1, at(1))) == [("k", "a", 1)]
        with pytest.raises(UserFunctionError):
            harness.process_batch([("k", "lost", at(2))], second=[("k", -1, at(3))])
        made = harness.process_batch(
            [("k", "c", at(5)), ("k", "b", at(2)), ("j", "z", at(2))],
            second=[{"id": "k", "n": 3, "t": at(6)}, ("k", 2, at(3)), ("j", 9, at(2))],
        )

        assert sorted(made) == [("j", "z", 9), ("k", "a,b", 2), ("k", "a,b,c", 3)]
        with raising(RowTypeError, "second input", expected=3, found=4):
            harness.process2(("k", "1", at(1), 0))


def test_inputs_must_fit_the_function() -> None:
    """Catches: a second input, or broadcast rows, that nobody would handle."""
    with raising(StateDeclarationError, option="second", expected=1, found=2):
        Harness(InOrder(), schema="n int", key="n", second=KeyedInput("n int", ["n"]))
    with raising(StateDeclarationError, option="second", expected=2, found=1):
        Harness(Joined(), schema="n int", key="n")
    with raising(StateDeclarationError, found=("string",)):
        Harness(Joined(), schema="n int", key="n", second=KeyedInput("n string", ["n"]))
    with raising(StateDeclarationError, option="broadcast"):
        Harness(InOrder(), schema="n int", key="n", broadcast="n int")
    with Harness(InOrder(), schema="n int", key="n", output="n int") as harness:
        with raising(StateDeclarationError, option="second"):
            harness.process2((1,))
        with raising(StateDeclarationError, option="broadcast"):
            harness.process_broadcast((1,))


def test_after_close() -> None:
    """Catches: a closed harness that goes on, or forgets what was put out."""
    harness = totals()
    harness.process(pay("a", 1, 0))
    harness.close()
    harness.close()

    assert harness.output == [("a", "sum", 1.0)]
    for use in (lambda: harness.process(pay("a", 1, 0)), lambda: harness.state("total", "a"), harness.crash):
        with raising(LifecycleError, found="closed"):
            use()
