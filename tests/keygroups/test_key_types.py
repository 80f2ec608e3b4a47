"""Names of key types: spelling, aliases, refusals."""

from __future__ import annotations

import datetime as dt
import decimal
import enum

import pytest

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.keygroups.key_types import key_type
from tests.raising import raising


class Colour(enum.IntEnum):
    """An int that is none."""

    RED = 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *[(name, "bigint") for name in ("tinyint", "smallint", "int", "bigint", "BIGINT")],
        *[(name, "bigint") for name in ("byte", "short", "integer", "long")],
        *[(name, "double") for name in ("float", "real", "double", "Double")],
        ("string", "string"),
        (" String ", "string"),
        ("string collate UTF8_BINARY", "string"),
        ("binary", "binary"),
        ("boolean", "boolean"),
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("timestamp_ltz", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("decimal(10,2)", "decimal(10,2)"),
        ("DECIMAL( 38 , 38 )", "decimal(38,38)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal", "decimal(10,0)"),
        ("numeric(7, 1)", "decimal(7,1)"),
    ],
)
def test_a_type_has_one_name(name: str, expected: str) -> None:
    """Catches: two spellings of one type in manifests, which would refuse a restore that is fine."""
    assert expected == key_type(name).name
    assert key_type(name) is key_type(expected)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("string collate UNICODE", "UTF8_BINARY"),
        ("string collate UTF8_LCASE", "lower"),
        ("array<int>", "several key columns"),
        ("map<string,int>", "several key columns"),
        ("struct<a:int>", "its fields"),
        ("variant", "variant_get"),
        ("interval day to second", "bigint"),
        ("interval", "bigint"),
        ("time(6)", "bigint"),
        ("timestamp_ntz(9)", "cast"),
        ("void", "cast"),
        ("varchar(10)", "string"),
        ("char(3)", "string"),
        ("geometry(4326)", "use one of bigint"),
        ("strings", "use one of bigint"),
        ("", "use one of bigint"),
    ],
)
def test_other_types_are_refused_with_a_way_out(name: str, way_out: str) -> None:
    """Catches: a type whose equality is not that of its hash accepted as key, or refused without help."""
    with raising(StateDeclarationError, found=name) as refusal:
        KeySchema([name])

    assert way_out in str(refusal.value)


@pytest.mark.parametrize("name", ["decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "decimal(5,-1)"])
def test_impossible_decimals_are_refused(name: str) -> None:
    """Catches: a decimal that Spark does not have, found only when the first row arrives."""
    with raising(StateDeclarationError, found=name):
        key_type(name)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (int, ("bigint",)),
        (str, ("string",)),
        (bytes, ("binary",)),
        (bool, ("boolean",)),
        (float, ("double",)),
        (dt.date, ("date",)),
        (dt.datetime, ("timestamp",)),
        ((str, int), ("string", "bigint")),
        ((bool, "timestamp_ntz", "decimal(10,2)"), ("boolean", "timestamp_ntz", "decimal(10,2)")),
        ("int", ("bigint",)),
    ],
)
def test_python_types(declared: object, expected: tuple[str, ...]) -> None:
    """Catches: bool taken for its base int, or datetime for its base date."""
    assert expected == KeySchema.from_python(declared).type_names


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        (Colour, "Colour"),
        (list, "list"),
        (None, "None"),
        (object, "object"),
        ([int], "[<class 'int'>]"),
        ((str, Colour), "Colour"),
        ((str, (int,)), "(<class 'int'>,)"),
        (bytearray, "bytearray"),
        (1, "1"),
    ],
)
def test_other_python_types_are_refused(declared: object, shown: str) -> None:
    """Catches: an enum or container declared as key, whose hash nobody defined."""
    with raising(StateDeclarationError, found=shown):
        KeySchema.from_python(declared)


def test_decimal_needs_precision_and_scale() -> None:
    """Catches: a guessed precision, which would change the hash (18 digits or fewer hash as a long)."""
    with raising(StateDeclarationError, r"decimal\(10,2\)", found="Decimal"):
        KeySchema.from_python(decimal.Decimal)


@pytest.mark.parametrize("type_names", ["string", b"string", 5, None])
def test_a_schema_is_a_sequence_of_names(type_names: object) -> None:
    """Catches: a str iterated letter by letter, with a puzzling message about a type 's'."""
    with raising(StateDeclarationError, r"\('string',\)", option="type_names", found=repr(type_names)):
        KeySchema(type_names)  # type: ignore[arg-type]


@pytest.mark.parametrize("declared", [(), []])
def test_a_key_has_columns(declared: tuple[str, ...]) -> None:
    """Catches: a key of no columns, which puts every row into one key."""
    with raising(StateDeclarationError, option="type_names", found=()):
        KeySchema(declared)


def test_a_name_must_be_a_str() -> None:
    """Catches: KeySchema([int]) failing with an AttributeError."""
    with raising(StateDeclarationError, "from_python", option="type_names", found=repr(int)):
        KeySchema([int])  # type: ignore[list-item]
