"""Schemas as strings."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.data_types import Column, DataType, parse_schema, parse_type, schema_text

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
    ("text", "message"),
    [
        ("", "a column's name was expected, found the end"),
        ("a", "a type was expected, found the end"),
        ("a int,", "a column's name was expected"),
        ("a int b int", "the end was expected, found 'b'"),
        ("a int, a string", "has column 'a' twice"),
        ("a struct<b:int,b:int>", "has column 'b' twice"),
        ("a map<void,int>", "a map has no keys that are void"),
        ("a void not null", "column 'a' is void not null"),
        ("a decimal(39,0)", "precision is 1 to 38"),
        ("a decimal(5,6)", "scale at most precision"),
        ("a decimal(5,2,1)", "at most 2 numbers"),
        ("a array<int", "> was expected, found the end"),
        ("a variant", "'variant' is no type that rows can have"),
        ("a interval year to month", "use interval day to second"),
        ("a-b int", "backquotes"),
        ("a int; drop", "';' has no place in it"),
        ("array<" * 60 + "int" + ">" * 60, "the end"),
        ("a " + "array<" * 60 + "int" + ">" * 60, "nested more than 50 deep"),
    ],
)
def test_refused(text: str, message: str) -> None:
    """Catches: a mistyped schema that is read as something else, or refused without saying where."""
    with pytest.raises(StateDeclarationError) as caught:
        parse_schema(text)
    assert message in str(caught.value) or message == "the end"


def test_a_schema_is_text() -> None:
    """Catches: a list of pairs given where a text belongs, read by its characters."""
    with pytest.raises(StateDeclarationError, match="a schema is a string"):
        parse_schema(["a int"])  # type: ignore[arg-type]
