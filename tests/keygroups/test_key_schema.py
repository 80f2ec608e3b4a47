"""Keys: what is accepted, what is refused, what is canonical."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import pickle
import random
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.keygroups import KeySchema
from emberstate.keygroups.spark_hash import micros_since_epoch
from tests.keygroups.golden import edge_values, random_value
from tests.raising import raising

BERLIN = ZoneInfo("Europe/Berlin")
AWARE = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
NAIVE = dt.datetime(2024, 5, 1, 12)
TYPES = (
    "bigint",
    "string",
    "binary",
    "boolean",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(10,2)",
)


class Colour(enum.StrEnum):
    """A str that is none."""

    RED = "red"


class Level(enum.IntEnum):
    """An int that is none."""

    LOW = 1


class Name(str):
    """A plain subclass."""


class Pair(NamedTuple):
    """A tuple with names."""

    a: str
    b: int


class NoOffset(dt.tzinfo):
    """A zone that does not know its offset: the datetime is naive all the same."""

    def utcoffset(self, _: dt.datetime | None) -> None:
        return None

    def dst(self, _: dt.datetime | None) -> None:
        return None

    def tzname(self, _: dt.datetime | None) -> None:
        return None


def refused(schema: KeySchema, key: object) -> str:
    """Assert that every entry point refuses the key in the same words, and return them."""
    messages = set()
    for entry in (
        schema.check,
        schema.normalise,
        schema.hash64,
        schema.key_grouper(128),
        schema.key_grouper(100),
        lambda key: schema.key_group(key, 128),
    ):
        with pytest.raises(StateTypeError) as refusal:
            entry(key)
        assert refusal.value.__cause__ is None
        messages.add(str(refusal.value))
    assert len(messages) == 1
    return messages.pop()


REFUSALS = [
    ("bigint", True, "declare boolean"),
    ("bigint", 1.0, "declare double"),
    ("bigint", Level.LOW, "key.value"),
    ("bigint", 2**63, "decimal"),
    ("bigint", -(2**63) - 1, "64 bits"),
    ("bigint", 1 << 99_999, "of 100000 bits"),
    ("bigint", "1", "declare string"),
    ("bigint", Decimal(1), "declare decimal"),
    ("bigint", (1,), "bare value"),
    ("string", b"a", "declare binary"),
    ("string", Colour.RED, "key.value"),
    ("string", Name("a"), "plain str"),
    ("string", "a\ud800", "lone surrogate"),
    ("string", 1 << 99_999, "of 100000 bits"),
    ("binary", bytearray(b"a"), r"bytes\(key\)"),
    ("binary", memoryview(b"a"), r"bytes\(key\)"),
    ("binary", "a", "declare string"),
    ("boolean", 1, "declare bigint"),
    ("boolean", "true", "declare string"),
    ("double", 1, "declare bigint"),
    ("double", True, "declare boolean"),
    ("double", float("nan"), "NaN equals nothing"),
    ("date", AWARE, r"key.date\(\)"),
    ("date", "2024-05-01", "declare string"),
    ("timestamp", NAIVE, "timestamp_ntz"),
    ("timestamp", NAIVE.replace(tzinfo=NoOffset()), "naive"),
    ("timestamp", dt.date(2024, 5, 1), "declare date"),
    ("timestamp", dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=1))), "years 1 to 9999"),
    ("timestamp", dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-1))), "years 1 to 9999"),
    ("timestamp", 0, "declare bigint"),
    ("timestamp_ntz", AWARE, "declare timestamp, or"),
    ("timestamp_ntz", NAIVE.replace(tzinfo=NoOffset()), "it has a zone"),
    ("timestamp_ntz", dt.date(2024, 5, 1), "declare date"),
    ("decimal(10,2)", 1, "declare bigint"),
    ("decimal(10,2)", 1.0, "declare double"),
    ("decimal(10,2)", Decimal("0.001"), "without rounding"),
    ("decimal(10,2)", Decimal("100000000"), "without rounding"),
    ("decimal(10,2)", Decimal("NaN"), "does not fit"),
    ("decimal(10,2)", Decimal("sNaN"), "does not fit"),
    ("decimal(10,2)", Decimal("-Infinity"), "does not fit"),
    ("decimal(10,2)", Decimal("1E+999999"), "does not fit"),
    ("decimal(10,2)", Decimal("1E-999999"), "does not fit"),
    ("decimal(38,38)", Decimal(1), "does not fit"),
    ("decimal(18,0)", Decimal(10**18), "does not fit"),
]


@pytest.mark.parametrize(("name", "key", "words"), REFUSALS, ids=lambda value: type(value).__name__)
def test_a_key_of_another_type_is_refused(name: str, key: object, words: str) -> None:
    """Catches: a key that equals another in Python but not in Spark, or cannot be hashed as Spark does."""
    message = refused(KeySchema([name]), key)

    assert message.startswith(f"Key column 1 is declared {name} and takes ")
    with raising(StateTypeError, words, key=key, expected=name):
        KeySchema([name]).check(key)


@pytest.mark.parametrize("name", TYPES)
def test_none_is_never_a_key(name: str) -> None:
    """Catches: a null key hashed as the seed (Spark skips nulls), merging all null rows into one key."""
    assert "a key cannot be null" in refused(KeySchema([name]), None)
    assert "Key column 2" in refused(KeySchema(["string", name]), ("a", None))


def test_one_true_and_one_point_zero_are_never_one_key() -> None:
    """Catches: dict semantics (1 == 1.0 == True) deciding which state a row reaches."""
    accepted = {"bigint": 1, "double": 1.0, "boolean": True, "decimal(10,2)": Decimal(1), "string": "1"}
    for declared in accepted:
        for other, key in accepted.items():
            if declared == other:
                KeySchema([declared]).check(key)
            else:
                refused(KeySchema([declared]), key)
    assert len(accepted) == len({KeySchema([name]).hash64(key) for name, key in accepted.items()})


def test_scalars_of_numpy_and_pandas_are_refused_with_a_way_out() -> None:
    """Catches: numpy.float64 (a float) or pandas.Timestamp (a datetime with nanoseconds) let through."""
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")

    assert "key.item()" in refused(KeySchema(["double"]), numpy.float64(1))
    assert "key.item()" in refused(KeySchema(["bigint"]), numpy.int64(1))
    assert "key.to_pydatetime()" in refused(KeySchema(["timestamp"]), pandas.Timestamp(0, tz="UTC"))


@pytest.mark.parametrize(
    ("key", "got"),
    [
        ("a", "got str 'a'"),
        (("a",), "a tuple of 1"),
        (("a", 1, 2), "a tuple of 3"),
        (["a", 1], "use tuple"),
        (Pair("a", 1), "use tuple"),
        (None, "got None"),
    ],
)
def test_a_composite_key_is_a_plain_tuple_of_its_columns(key: object, got: str) -> None:
    """Catches: missing or extra columns hashed as far as they go."""
    message = refused(KeySchema(["string", "bigint"]), key)

    assert "(string, bigint) is a plain tuple of 2" in message
    assert got in message


def test_a_message_names_the_column() -> None:
    """Catches: a refusal of a three-column key that leaves one searching for the column."""
    assert "Key column 3 is declared double" in refused(
        KeySchema(["string", "bigint", "double"]), ("a", 1, 2)
    )


def test_a_broken_repr_does_not_hide_the_refusal() -> None:
    """Catches: the message raising an error of its own."""

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Broken" in refused(KeySchema(["string"]), Broken())


CANONICAL = [
    ("bigint", -(2**63), -(2**63)),
    ("double", -0.0, 0.0),
    ("double", float("-inf"), float("-inf")),
    ("string", "e\u0301", "e\u0301"),
    ("date", dt.date.min, dt.date.min),
    ("timestamp", dt.datetime(2024, 5, 1, 14, tzinfo=BERLIN), AWARE),
    (
        "timestamp",
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
        dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),
    ),
    (
        "timestamp",
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
        dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
    ),
    ("timestamp", AWARE.replace(fold=1), AWARE),
    ("timestamp", dt.datetime.max.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)),
    ("timestamp_ntz", NAIVE.replace(fold=1), NAIVE),
    ("decimal(10,2)", Decimal("1"), Decimal("1.00")),
    ("decimal(10,2)", Decimal("1.5000"), Decimal("1.50")),
    ("decimal(10,2)", Decimal("1E+3"), Decimal("1000.00")),
    ("decimal(10,2)", Decimal("-0"), Decimal("0.00")),
    ("decimal(10,2)", Decimal("0E-999"), Decimal("0.00")),
    ("decimal(38,0)", Decimal(-(10**38) + 1), Decimal(-(10**38) + 1)),
]


def exactly(value: Any) -> tuple[Any, ...]:
    """Return what tells canonical values apart where == does not."""
    return type(value), repr(value), getattr(value, "fold", None), getattr(value, "tzinfo", None)


@pytest.mark.parametrize(("name", "key", "expected"), CANONICAL)
def test_canonical_keys(name: str, key: object, expected: object) -> None:
    """Catches: one key in two forms, which encode differently and are two keys in a checkpoint."""
    schema = KeySchema([name])

    assert exactly(expected) == exactly(schema.normalise(key))
    assert exactly(expected) == exactly(schema.normalise(expected))
    assert schema.hash64(expected) == schema.hash64(key)
    pair = KeySchema([name, "bigint"])
    assert exactly(expected) == exactly(pair.normalise((key, 1))[0])
    assert pair.hash64((expected, 1)) == pair.hash64((key, 1))


@pytest.mark.parametrize("name", [*TYPES, "decimal(19,4)", "decimal(38,18)"])
def test_normalise_is_idempotent_and_keeps_the_hash(name: str) -> None:
    """Catches: a canonical form that is not canonical, or that falls into another group."""
    schema, rng = KeySchema([name]), random.Random(11)
    for key in [*edge_values(name), *(random_value(name, rng) for _ in range(200))]:
        canonical = schema.normalise(key)
        assert exactly(canonical) == exactly(schema.normalise(canonical))
        assert schema.hash64(canonical) == schema.hash64(key)
        assert key == canonical
        schema.check(key)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None) | st.decimals(-1000, 1000, places=3))
def test_a_decimal_is_accepted_exactly_if_it_fits(key: Decimal) -> None:
    """Catches: silent rounding, which would merge keys; trust in the thread's decimal context."""
    schema = KeySchema(["decimal(6,2)"])
    _, digits, exponent = key.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + 2
    fits = number == 0 or (
        (shift >= 0 and shift < 7 and number * 10**shift < 10**6)
        or (shift < 0 and -shift <= len(digits) and number % 10**-shift == 0 and number // 10**-shift < 10**6)
    )
    with decimal.localcontext() as context:
        context.prec = 1
        if fits:
            canonical = schema.normalise(key)
            assert (key, -2) == (canonical, canonical.as_tuple().exponent)
        else:
            refused(schema, key)


@given(st.datetimes(timezones=st.timezones() | st.just(dt.UTC), allow_imaginary=True))
def test_timestamps_are_exact_in_any_zone(key: dt.datetime) -> None:
    """Catches: floats on the way to microseconds, a fold or an offset that is ignored."""
    schema = KeySchema(["timestamp"])
    offset = key.utcoffset()
    assert offset is not None
    wall = key.replace(tzinfo=None)
    micros = (
        (wall.toordinal() - 719163) * 86_400 + wall.hour * 3600 + wall.minute * 60 + wall.second
    ) * 10**6
    micros += wall.microsecond - offset // dt.timedelta(microseconds=1)
    if not -62_135_596_800_000_000 <= micros <= 253_402_300_799_999_999:
        refused(schema, key)
        return
    canonical = schema.normalise(key)

    assert micros == micros_since_epoch(canonical)
    assert (canonical.tzinfo, canonical.fold) == (dt.UTC, 0)
    assert KeySchema(["bigint"]).hash64(micros) == schema.hash64(key)


@given(st.datetimes())
def test_wall_times_are_exact(key: dt.datetime) -> None:
    """Catches: this machine's zone in the hash of a timestamp_ntz."""
    as_utc = key.replace(tzinfo=dt.UTC)

    assert KeySchema(["timestamp"]).hash64(as_utc) == KeySchema(["timestamp_ntz"]).hash64(key)


@given(st.text(st.characters(exclude_categories=())))
def test_text_is_accepted_exactly_if_it_is_unicode(key: str) -> None:
    """Catches: a lone surrogate let through by one of the entry points."""
    schema = KeySchema(["string"])
    if any("\ud800" <= char <= "\udfff" for char in key):
        refused(schema, key)
    else:
        assert schema.normalise(key) is key
        assert KeySchema(["binary"]).hash64(key.encode("utf-8")) == schema.hash64(key)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=5))
def test_the_order_of_columns_matters(key: list[int]) -> None:
    """Catches: columns combined by a symmetric operation, so that (1, 2) and (2, 1) always share a group."""
    schema = KeySchema(["bigint"] * len(key))

    assert (schema.hash64(tuple(key)) == schema.hash64(tuple(reversed(key)))) == (key == key[::-1])


@pytest.mark.parametrize("max_parallelism", [0, -1, 32769, 12.5, "128", None, True])
def test_key_group_checks_max_parallelism(max_parallelism: int) -> None:
    """Catches: groups beyond the cap, or ZeroDivisionError."""
    schema = KeySchema(["bigint"])

    with pytest.raises(StateDeclarationError):
        schema.key_group(1, max_parallelism)
    with pytest.raises(StateDeclarationError):
        schema.key_grouper(max_parallelism)


def test_require_same() -> None:
    """Catches: a restore under another key schema, where every key would be looked up in a wrong group."""
    schema = KeySchema(["string", "int"])

    schema.require_same(("string", "bigint"))
    schema.require_same(["string", "bigint"])
    stored: Any
    for stored in (
        ("bigint", "string"),
        ("string",),
        ("string", "bigint", "date"),
        (),
        "string",
        ["string", None],
    ):
        columns = (stored,) if isinstance(stored, str) else tuple(stored)
        with raising(StateDeclarationError, expected=columns, found=("string", "bigint")):
            schema.require_same(stored)
    with raising(StateDeclarationError, expected=("string", "decimal(10,2)"), found=("string", "bigint")):
        schema.require_same(("string", "decimal(10,2)"))


def test_a_schema_is_a_value() -> None:
    """Catches: a schema that cannot travel to a worker, or that changes after its closures were made."""
    schema = KeySchema(["string", "int"])
    schema.key_group(("a", 1), 128)

    for twin in (
        pickle.loads(pickle.dumps(schema)),
        copy.copy(schema),
        copy.deepcopy(schema),
        eval(repr(schema)),
    ):
        assert (schema, hash(schema)) == (twin, hash(twin))
        assert schema.key_group(("a", 1), 128) == twin.key_group(("a", 1), 128)
    assert schema != KeySchema(["string"])
    assert schema != ("string", "bigint")
    with pytest.raises(AttributeError, match="type_names"):
        schema.type_names = ("bigint",)
    with pytest.raises(AttributeError, match="type_names"):
        del schema.type_names
