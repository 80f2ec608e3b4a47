"""Functions that name the types of their rows, key and output."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec
import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import RowTypeError, StateDeclarationError, UserFunctionError
from emberstate.testing import Harness, KeyedInput
from tests.raising import raising
from tests.runtime.rows import typed_rows
from tests.testing.support import at

SCHEMA = "card string, shop string, amount double, ts timestamp"


@dataclasses.dataclass(slots=True)
class Payment:
    """The columns that a function needs."""

    amount: float
    card: str


class Total(NamedTuple):
    """What it emits."""

    card: str
    total: float
    last: str | None = None


class Totals(es.KeyedProcessFunction[Payment, str, Total]):
    """A running total."""

    total = es.value_state(float, default=0.0)

    def process_element(self, row: Payment, ctx: es.FunctionContext) -> Iterator[Total]:
        assert type(row) is Payment
        self.total.update(self.total.value() + row.amount)
        yield Total(row.card, self.total.value())


def pay(card: str, amount: float | None, seconds: int = 0) -> Any:
    """A whole row."""
    return {"card": card, "shop": "s", "amount": amount, "ts": at(seconds)}


def test_rows_key_and_output_by_type(state_backend: StateBackend) -> None:
    """Catches: rows of another class, values of the wrong columns, or an output whose schema is not its class's."""
    with Harness(Totals(), schema=SCHEMA, key="card", state_backend=state_backend) as harness:
        harness.process(pay("ann", 1.0), pay("bob", 2.0))
        harness.crash()
        assert harness.process(pay("ann", 4.0)) == [("ann", 5.0, None)]
        with raising(RowTypeError, column="amount"):
            harness.process(pay("ann", None))
        assert harness.process(pay("ann", 1.0)) == [("ann", 6.0, None)]


@pytest.mark.parametrize("row_class", typed_rows.ALL)
def test_rows_of_every_kind_of_class_come_and_go(row_class: Any) -> None:
    """Catches: a kind of class that can be read and not emitted, or is emitted by position where it has names."""

    class Echo(es.KeyedProcessFunction):
        kept = es.list_state(float)

        def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
            assert type(row) is row_class
            return row if row.amount else [row, row]

    Echo.process_element.__annotations__["row"] = row_class
    with Harness(Echo(), schema=SCHEMA, key="card", output="card string, amount double") as harness:
        expected = row_class(card="ann", amount=1.5)
        assert harness.process(pay("ann", 1.5)) == [(expected.card, 1.5)]
        assert len(harness.process(pay("ann", 0.0))) == 2


class Late(es.KeyedProcessFunction):
    """Late rows go to the late output."""

    def process_element(self, row: Payment, ctx: Any) -> Iterator[Any]:
        yield row.card, row.amount


class LateBatches(es.KeyedProcessFunction):
    """The same by batches."""

    def process_batch(self, key: str, rows: list[Payment], ctx: Any) -> Iterator[Any]:
        for row in rows:
            yield row.card, row.amount


class LateHandled(Late):
    """Late rows are handled, as the same type."""

    process_late_element = Late.process_element


@pytest.mark.parametrize("function", [Late(), LateBatches(), LateHandled()])
def test_late_rows(function: Any) -> None:
    """Catches: late rows that lose the columns which the function does not ask for, or the wrong late row."""
    options: dict[str, Any] = {"event_time": "ts", "output": "card string, amount double", "late_output": "late"}
    with Harness(function, schema=SCHEMA, key="card", **options) as harness:
        harness.process(pay("ann", 1.0, 100))
        made = harness.process_batch([pay("ann", 2.0, 100), pay("bob", 3.0, 5), pay("ann", 4.0, 6)])
        if isinstance(function, LateHandled):
            assert sorted(made) == [("ann", 2.0), ("ann", 4.0), ("bob", 3.0)]
            assert harness.side_output("late") == []
        else:
            assert made == [("ann", 2.0)]
            assert harness.side_output("late") == [("bob", "s", 3.0, at(5)), ("ann", "s", 4.0, at(6))]


class Refund(msgspec.Struct, frozen=True):
    """A row of a second input."""

    why: str | None
    id: str


class Both(es.KeyedCoProcessFunction[Payment, Refund, str, Any]):
    """Names a type for each input."""

    def process_element1(self, row: Payment, ctx: Any) -> Iterator[Any]:
        yield type(row).__name__, row.card, str(row.amount)

    def process_element2(self, row: Refund, ctx: Any) -> Iterator[Any]:
        yield type(row).__name__, row.id, row.why


def test_two_inputs_have_a_type_each() -> None:
    """Catches: rows of one input made as the other's class."""
    second = KeyedInput("id string, n int, why string", ["id"])
    with Harness(Both(), schema=SCHEMA, key="card", second=second, output="a string, b string, c string") as harness:
        made = harness.process_batch([pay("ann", 1.0)], second=[("ann", 1, None), ("ann", 2, "broken")])
        assert made == [("Payment", "ann", "1.0"), ("Refund", "ann", None), ("Refund", "ann", "broken")]


class Limit(NamedTuple):
    """A broadcast row."""

    top: float


class Limited(es.KeyedBroadcastProcessFunction[Payment, Limit, str, Total]):
    """Drops payments above the limit."""

    limits = es.broadcast_state(str, float)

    def process_broadcast_element(self, row: Limit, ctx: Any) -> None:
        assert type(row) is Limit
        self.limits.put("top", row.top)

    def process_element(self, row: Payment, ctx: Any) -> Iterator[Total]:
        if row.amount <= (self.limits.get("top") or 0.0):
            yield Total(row.card, row.amount)


def test_broadcast_rows_have_a_type() -> None:
    """Catches: broadcast rows that stay plain, or take a null that their type does not."""
    with Harness(Limited(), schema=SCHEMA, key="card", broadcast="note string, top double") as harness:
        with raising(RowTypeError, column="top"):
            harness.process_broadcast(("x", None))
        harness.process_broadcast(("x", 2.0))
        assert harness.process(pay("ann", 1.0), pay("ann", 3.0)) == [("ann", 1.0, None)]


class Named(es.KeyedProcessFunction):
    """Says nothing of its rows."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield (repr(row),)


def test_columns_by_hand() -> None:
    """Catches: rows that have other columns, or another order, than `columns` says; a name that is none."""
    options: dict[str, Any] = {"schema": SCHEMA, "key": "card", "output": "row string"}
    with Harness(Named(), columns=["amount", "shop"], **options) as harness:
        assert harness.process(pay("ann", 1.0)) == [("Row(amount=1.0, shop='s')",)]
    with raising(StateDeclarationError, option="columns", column="shops"):
        Harness(Named(), columns=["shops"], **options)
    with raising(StateDeclarationError, option="columns"):
        Harness(Late(), columns=["card"], **options)


def test_the_type_may_change_between_two_runs() -> None:
    """Catches: state that depends on which columns a function asks for; the old class used after a restore."""

    class More(NamedTuple):
        card: str
        ts: datetime
        amount: float

    class Changed(Totals):
        def process_element(self, row: Any, ctx: Any) -> Any:
            assert type(row) is More
            self.total.update(self.total.value() + row.amount)
            return Total(row.card, self.total.value(), row.ts.isoformat())

    Changed.process_element.__annotations__["row"] = Any
    Changed.__orig_bases__ = (es.KeyedProcessFunction[More, str, Total],)  # type: ignore[attr-defined]
    with Harness(Totals(), schema=SCHEMA, key="card") as harness:
        harness.process(pay("ann", 1.0))
        harness.restore(function=Changed())
        assert harness.process(pay("ann", 1.0)) == [("ann", 2.0, at(0).isoformat())]


class HasCard(Protocol):
    """Says what rows have."""

    card: str


def annotated(hint: Any) -> Any:
    """A function whose row has this annotation."""

    class Annotated(es.KeyedProcessFunction):
        def process_element(self, row, ctx):  # type: ignore[no-untyped-def]
            yield (type(row).__name__,)

    Annotated.process_element.__annotations__["row"] = hint
    return Annotated()


@pytest.mark.parametrize("hint", [Any, object, es.Row, tuple, tuple[Any, ...], HasCard, "Any", "es.Row"])
def test_annotations_that_leave_rows_as_they_are(hint: Any) -> None:
    """Catches: a function of before that is refused for a harmless annotation."""
    with Harness(annotated(hint), schema=SCHEMA, key="card", output="kind string") as harness:
        assert harness.process(pay("ann", 1.0)) == [("Row",)]


@pytest.mark.parametrize("hint", [dict, str, Payment | None, "Nowhere", list[Payment]])
def test_annotations_that_no_row_can_have(hint: Any) -> None:
    """Catches: rows that are not what the function says they are."""
    with raising(StateDeclarationError, option="row"):
        Harness(annotated(hint), schema=SCHEMA, key="card", output="kind string")


def test_types_that_contradict_are_refused() -> None:
    """Catches: one of two types taken silently; a key or a schema that is another than the base says."""

    class Two(Totals):
        def process_element(self, row: Limit, ctx: Any) -> Any:  # type: ignore[override]
            return None

    class IntKey(es.KeyedProcessFunction[Payment, int, Total]):
        def process_element(self, row: Payment, ctx: Any) -> None: ...

    with raising(StateDeclarationError, option="process_element"):
        Harness(Two(), schema=SCHEMA, key="card")
    with raising(StateDeclarationError, option="key_by", expected=["string"]):
        Harness(IntKey(), schema=SCHEMA, key="card")
    with raising(StateDeclarationError, option="key_by", expected=["string", "string"]):
        Harness(Totals(), schema=SCHEMA, key=["card", "shop"])
    with raising(StateDeclarationError, option="schema", found=("total", "card", "last")):
        Harness(Totals(), schema=SCHEMA, key="card", output="total double, card string, last string")


def test_an_output_that_is_not_its_columns_is_refused() -> None:
    """Catches: fields of a dataclass that go into columns of other names, or are lost."""

    class Wrong(Named):
        def process_element(self, row: Any, ctx: Any) -> Any:
            return Payment(1.0, "ann")

    with Harness(Wrong(), schema=SCHEMA, key="card", output="card string, price double") as harness:
        with pytest.raises((RowTypeError, UserFunctionError)) as caught:
            harness.process(pay("ann", 1.0))
        assert caught.value.place["column"] == "price"


def test_an_output_with_defaults_left_out_is_whole() -> None:
    """Catches: a field with a default that is no column of the derived schema."""
    with Harness(Totals(), schema=SCHEMA, key="card") as harness:
        [row] = harness.process(pay("ann", 1.0))
        assert row.as_dict() == {"card": "ann", "total": 1.0, "last": None}
