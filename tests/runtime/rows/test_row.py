"""Rows as tuples, by name, in state and in pickles."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from typing import Any

import pytest

from emberstate.codec import codec_for
from emberstate.errors import Place, RowTypeError, StateDeclarationError, StateTypeError
from emberstate.runtime.rows.row import Row, RowType
from tests.patience import PATIENCE
from tests.raising import raising

CARDS = RowType.of("card string, amount double, count int, index int")


def test_a_row_is_a_tuple_with_names() -> None:
    """Catches: columns called as tuple methods (count, index) that cannot be read, rows that do not unpack."""
    row: Any = CARDS.row("a", 1.5, 2, 3)
    card, amount, count, index = row

    assert (card, amount, count, index) == (row.card, row.amount, row.count, row.index) == ("a", 1.5, 2, 3)
    assert row == ("a", 1.5, 2, 3)
    assert hash(row) == hash(("a", 1.5, 2, 3))
    assert row.as_dict() == {"card": "a", "amount": 1.5, "count": 2, "index": 3}
    assert repr(row) == "Row(card='a', amount=1.5, count=2, index=3)"
    assert isinstance(row, Row)
    assert not isinstance(("a",), Row)


def test_names_that_are_no_identifiers() -> None:
    """Catches: a column `class` or `_id` or `a b` for which a named tuple would be refused."""
    row: Any = RowType.of("class string, _id int, `a b` int, __slots__ int, as_dict int, _fields int").row(*"abcdef")

    assert (getattr(row, "class"), row._id, getattr(row, "a b")) == ("a", "b", "c")
    assert row.as_dict()["as_dict"] == "e"  # the method stays what it is; the value is there by position and name
    assert row[3] == "d"


def test_rows_can_be_pickled() -> None:
    """Catches: a row that cannot be sent to another process, since its class is in no module."""
    row = RowType.of("a int, s struct<b:string>").row(1, None)

    again = pickle.loads(pickle.dumps(row))

    assert (again, type(again).__name__, again.a) == (row, "Row", 1)


def test_rows_stand_in_state() -> None:
    """Catches: a row that comes back from state as a bare tuple, or with structs that lost their names."""
    rows = RowType.of("id bigint, s struct<a:int,tags:array<string>>, at timestamp, m map<string,double>")
    struct: Any = RowType.of("a int, tags array<string>")
    inner = rows.row_class.__annotations__["s"].__args__[0]
    row = rows.row(1, inner(1, ["x", None]), None, {"k": 1.0})
    codec: Any = codec_for(rows.row_class)
    again = codec.decode(codec.encode(row))

    assert again == row
    assert type(again) is rows.row_class
    assert again.s.tags == ["x", None]
    assert struct.row(1, ["x", None]) == again.s


@pytest.mark.parametrize(
    "schema",
    ["card string, n int", "s struct<a:int not null,`b.c`:array<struct<x:int>>> not null", "`100%.25` int, `(` date"],
)
def test_one_schema_has_one_class(schema: str) -> None:
    """Catches: "expected Row, got Row": a state declared with a class of rows that no input has."""
    rows = RowType.of(schema)
    by_value = pytest.importorskip("pyspark.cloudpickle")

    assert RowType.of(schema) is rows
    assert RowType(rows.columns) is rows
    for again in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows), by_value.loads(by_value.dumps(rows))):
        assert again is rows
    for dumped in (pickle.dumps(rows.row_class), pickle.dumps(rows.row_class, 2), by_value.dumps(rows.row_class)):
        assert pickle.loads(dumped) is rows.row_class
    row = rows.row(*range(len(rows.names)))
    assert type(pickle.loads(pickle.dumps(row))) is type(copy.copy(row)) is rows.row_class


def test_one_class_for_all_threads() -> None:
    """Catches: two threads that make a row type of one schema at a time, and get two."""
    found: list[Any] = []
    starts = threading.Barrier(4)

    def make() -> None:
        starts.wait(PATIENCE)
        found.extend([RowType.of(f"a int, s struct<b{n}:int>") for n in range(200)])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(found) == 800
    assert len({row_type.row_class for row_type in found}) == 200


def test_row_types_that_nothing_uses_are_given_up() -> None:
    """Catches: a driver that grows with every schema it has ever seen."""
    gone = weakref.ref(RowType.of("only int, here int"))
    gc.collect()

    assert gone() is None


def test_a_row_of_another_schema_is_told_apart() -> None:
    """Catches: a message that calls both schemas Row."""
    codec: Any = codec_for(RowType.of("card string, n int").row_class)

    with raising(StateTypeError, r"n int\).*n bigint\)", field="$"):
        codec.check(RowType.of("card string, n bigint").row("a", 1))


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda: CARDS.row("a"), {"expected": 4, "found": 1}),
        (lambda: CARDS.row("a", count=1), {"found": ("count",)}),
        (lambda: CARDS.row(card="a", amount=1.0, count=1), {"column": "index", "expected": CARDS.names}),
        (lambda: CARDS.row(card="a", amount=1.0, count=1, index=1, x=1), {"column": "x", "expected": CARDS.names}),
        (lambda: CARDS.coerce(["a", 1.0, 1, 1]), {"found": "list"}),
    ],
)
def test_refused(make: Any, place: Place) -> None:
    """Catches: a row with a value too few, or in the wrong column."""
    with raising(RowTypeError, **place):
        make()


def test_schemas() -> None:
    """Catches: pairs that make another row type than the text, and what is neither."""
    assert RowType.of([("a", "int"), ("b", "array<string>")]) == RowType.of("a int, b array<string>")
    assert pickle.loads(pickle.dumps(CARDS)) == CARDS
    with raising(StateDeclarationError, option="schema"):
        RowType.of([1, 2])  # type: ignore[list-item]
    with raising(StateDeclarationError, column="x"):
        CARDS.position("x")
