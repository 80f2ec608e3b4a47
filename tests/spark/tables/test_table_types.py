"""Types and options of tables, without a Spark session: what Spark would be given, and what comes back of it."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from emberstate.checkpoint.offline.typed_values import typed_maker
from emberstate.checkpoint.read.arrow_values import ColumnProfile, arrow_type, plain_decoder
from emberstate.codec import codec_for
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.arrow_rows import columns_of
from emberstate.runtime.rows.data_types import parse_type
from emberstate.spark.tables.options import (
    READ_OPTIONS,
    WRITE_OPTIONS,
    check_options,
    checkpoint_number,
    key_groups,
    kind_of_state,
    number,
)
from emberstate.spark.tables.types import (
    arrow_schema,
    check_chosen,
    check_key_types,
    fitted,
    row_type,
    spark_schema,
    state_type,
)
from tests.checkpoint.offline.test_typed_values import may_lose_none
from tests.codec.typed_values import canon, cases
from tests.effort import examples
from tests.raising import raising


@settings(max_examples=examples(150))
@given(data=st.data())
def test_state_goes_to_spark_and_back(data: st.DataObject) -> None:
    """Catches: a type that Spark would refuse, a batch that does not fit its schema, a value that is changed."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    assert codec.node is not None
    kinds = {part.kind for part in codec.node.walk()}
    assume(not may_lose_none(codec.node))
    profile = ColumnProfile()
    decode = plain_decoder(codec.schema, {}, profile)
    values = data.draw(st.lists(case.values, min_size=1, max_size=4))
    plain = [decode(codec.encode(value)) for value in values]
    plain = [decode(codec.encode(value)) for value in values]  # now that all were looked at
    try:
        stored = pa.record_batch({"value": pa.array(plain, arrow_type(codec.schema, profile))})
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        assume(False)  # what no Arrow column holds; CheckpointReader says so
    schema = spark_schema(stored.schema)
    batch = fitted(stored, arrow_schema(schema))
    batch.validate(full=True)
    assert batch.schema == arrow_schema(schema)
    (column,) = columns_of(batch, row_type(schema))
    if "decimal" in kinds or "float" in kinds or codec.schema.kind == "none":
        return  # digits after the point are the column's, and NaN is not equal to itself in a set
    make = typed_maker(codec, "it")
    for value, cell in zip(values, column, strict=True):
        if value is not None:
            assert canon(make(cell)) == canon(value)


def test_what_spark_has_not_becomes_text() -> None:
    """Catches: a table that cannot be read because of one column."""
    big = decimal.Decimal("1" * 40 + ".5")
    batch = pa.record_batch(
        {
            "time": pa.array([datetime.time(1, 2, 3, 4)], pa.time64("us")),
            "big": pa.array([{"a": [big]}], pa.struct({"a": pa.list_(pa.decimal256(41, 1))})),
            "none": pa.array([None], pa.null()),
            "map": pa.array([[("a", datetime.time(1))]], pa.map_(pa.string(), pa.time64("us"))),
        }
    )
    schema = spark_schema(batch.schema)
    assert schema.simpleString() == (
        "struct<time:string,big:struct<a:array<string>>,none:string,map:map<string,string>>"
    )
    assert fitted(batch, arrow_schema(schema)).to_pylist() == [
        {"time": "01:02:03.000004", "big": {"a": [str(big)]}, "none": None, "map": [("a", "01:00:00.000000")]}
    ]


def test_a_schema_of_the_user_chooses_columns() -> None:
    """Catches: a column that is invented, or read as another type."""
    there = StructType([StructField("key", StringType()), StructField("value", LongType())])
    check_chosen(StructType([StructField("value", LongType(), False)]), there)
    with raising(StateDeclarationError, column="valu"):
        check_chosen(StructType([StructField("valu", LongType())]), there)
    with raising(StateDeclarationError, column="value", expected="bigint", found="string"):
        check_chosen(StructType([StructField("value", StringType())]), there)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("string", str), ("int", int), ("bigint", int), ("float", float), ("double", float), ("boolean", bool),
        ("binary", bytes), ("timestamp", datetime.datetime), ("timestamp_ntz", datetime.datetime),
        ("date", datetime.date), ("decimal(10,2)", decimal.Decimal), ("interval day to second", datetime.timedelta),
        ("array<string>", list[str]), ("map<string,array<bigint>>", dict[str, list[int]]),
    ],
)  # fmt: skip
def test_types_of_states_follow_from_columns(name: str, type_: Any) -> None:
    """Catches: a state that the job declares as what its column suggests, and that does not fit."""
    found = state_type(parse_type(name), "it")
    assert found == type_
    codec_for(found)


@pytest.mark.parametrize(
    ("name", "found"), [("struct<a:int>", "struct<a:int>"), ("array<struct<a:int>>", "struct<a:int>"), ("void", "void")]
)
def test_types_that_say_too_little_are_refused(name: str, found: str) -> None:
    """Catches: a struct that is stored as some class that the job does not have."""
    with raising(StateDeclarationError, found=found):
        state_type(parse_type(name), "column 'c'")


def test_collated_strings_are_no_keys() -> None:
    """Catches: a collation that Arrow forgets, so that keys hash otherwise than in Spark."""
    schema = StructType([StructField("k", StringType("UTF8_LCASE"))])
    with raising(StateDeclarationError, "collate"):
        check_key_types(schema, ["k"])


# -- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "groups"), [("0", [0]), ("3,5", [3, 5]), ("0-3", [0, 1, 2, 3]), (" 7 - 8 ,1", [1, 7, 8])]
)
def test_key_groups(text: str, groups: list[int]) -> None:
    """Catches: ranges that are one short or one long."""
    assert key_groups({"key_groups": text}) == groups


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "1.5", "0-99999999999", "１"])
def test_key_groups_that_are_none(text: str) -> None:
    """Catches: a typo that reads everything or nothing."""
    with raising(StateDeclarationError, option="key_groups", found=text):
        key_groups({"key_groups": text})


def test_options_that_make_no_sense_are_refused() -> None:
    """Catches: an option that is silently ignored."""
    with raising(StateDeclarationError, option="keygroups", expected="key_groups"):
        check_options({"path": "x", "keyGroups": "1"}, READ_OPTIONS)
    with raising(StateDeclarationError, option="zzz", expected=None):
        check_options({"zzz": "1"}, WRITE_OPTIONS)
    assert check_options({"PATH": "x", "State": "s"}, READ_OPTIONS) == {"path": "x", "state": "s"}
    assert checkpoint_number({}) is checkpoint_number({"checkpoint": "Latest"}) is None
    assert checkpoint_number({"checkpoint": "17"}) == 17
    for text in ("newest", "0", "-1", "1.0"):
        with raising(StateDeclarationError, option="checkpoint", found=text):
            checkpoint_number({"checkpoint": text})
    with raising(StateDeclarationError, option="partitions", found="0"):
        number({"partitions": "0"}, "partitions", 1)
    assert kind_of_state({}) == "value"
    assert kind_of_state({"user_key": "u"}) == "map"
    with raising(StateDeclarationError, option="kind", found="reducing"):
        kind_of_state({"kind": "reducing"})
