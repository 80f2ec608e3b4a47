"""Schemas as strings."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from emberstate.errors import Place, StateDeclarationError
from emberstate.runtime.rows.data_types import MAX_DEPTH, Column, DataType, parse_schema, parse_type, schema_text
from tests.raising import raising

NUMBERS = ["tinyint", "smallint", "int", "bigint", "float", "double"]
OTHERS = ["string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "interval day to second", "void"]
SIMPLE = st.sampled_from([*NUMBERS, *OTHERS]).map(DataType)
DECIMALS = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda scale: DataType("decimal", precision=p, scale=scale))
)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name.strip() == name)


def columns(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Column, ...]]:
    some = st.builds(
        lambda name, type_, nullable: Column(name, type_, nullable or type_.kind == "void"), NAMES, types, st.booleans()
    )
    return st.lists(some, min_size=1, max_size=4, unique_by=lambda column: column.name).map(tuple)


TYPES = st.recursive(
    SIMPLE | DECIMALS,
    lambda inner: st.one_of(
        inner.map(lambda item: DataType("array", (item,))),
        st.tuples(inner.filter(lambda key: key.kind != "void"), inner).map(lambda pair: DataType("map", pair)),
        columns(inner).map(lambda fields: DataType("struct", (), fields)),
    ),
    max_leaves=6,
)


@given(columns(TYPES))
def test_what_is_written_is_read(schema: tuple[Column, ...]) -> None:
    """Catches: a name, nested type or "not null" of a struct's field that a schema's own text does not bring back."""
    assert parse_schema(schema_text(schema)) == schema


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("INT", "int"),
        ("long", "bigint"),
        ("Real", "float"),
        ("varchar(10)", "string"),
        ("dec", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("decimal( 5 , 2 )", "decimal(5,2)"),
        ("timestamp_ltz", "timestamp"),
        ("interval hour to minute", "interval day to second"),
        ("array<array<int>>", "array<array<int>>"),
        ("struct<a int, b: string not null>", "struct<a:int,b:string not null>"),
    ],
)
def test_spellings(text: str, name: str) -> None:
    """Catches: a way to write a type that Spark takes and we refuse, or read as another."""
    assert parse_type(text).name == name


def test_comments_and_nullability() -> None:
    """Catches: a schema pasted from Spark, with comments, that is refused."""
    assert parse_schema("a int not null comment 'the \\'first\\'', `b ``c` string") == (
        Column("a", DataType("int"), nullable=False),
        Column("b `c", DataType("string")),
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", {"expected": "a column name", "found": ""}),
        ("a", {"expected": "a type", "found": ""}),
        ("a int,", {"expected": "a column name", "found": ""}),
        ("a int b int", {"expected": "the end", "found": "b"}),
        ("a int, a string", {"column": "a"}),
        ("a struct<b:int,b:int>", {"column": "b"}),
        ("a map<void,int>", {"found": "void"}),
        ("a void not null", {"column": "a"}),
        ("a decimal(39,0)", {"found": "decimal(39,0)"}),
        ("a decimal(5,6)", {"found": "decimal(5,6)"}),
        ("a decimal(5,2,1)", {"found": "1"}),
        ("a array<int", {"expected": ">", "found": ""}),
        ("a variant", {"found": "variant"}),
        ("a interval year to month", {"found": "year"}),
        ("a-b int", {"found": "-"}),
        ("a int; drop", {"found": ";"}),
        ("array<" * 60 + "int" + ">" * 60, {"expected": "a type", "found": "<"}),
        ("a " + "array<" * 60 + "int" + ">" * 60, {"expected": MAX_DEPTH}),
    ],
)
def test_refused(text: str, place: Place) -> None:
    """Catches: a mistyped schema that is read as something else, or refused without saying where."""
    with raising(StateDeclarationError, **place):
        parse_schema(text)


def test_a_schema_is_text() -> None:
    """Catches: a list of pairs given where a text belongs, read by its characters."""
    with raising(StateDeclarationError, option="schema", found="list"):
        parse_schema(["a int"])  # type: ignore[arg-type]
