"""Key columns at run time, by type: the values that a column accepts, their canonical form, their hash.

Invariants
1. Types are tested exactly. In Python 1 == 1.0 == True with one hash(), in Spark they are three keys;
   a subclass (an enum, a numpy scalar, a pandas Timestamp) may compare or encode in its own way.
2. ``digest(v)`` accepts exactly what ``normalise(v)`` accepts, and digest(v) == digest(normalise(v)).
3. Two accepted values have equal canonical values if and only if Spark's ``=`` holds between them.

Thread safety: columns are immutable. The decimal context of a column is shared by its callers; it only
collects flags, which nothing reads: what traps is decided by each operation's own outcome.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from datetime import UTC, date, datetime
from struct import error as StructError
from typing import Any, NamedTuple, Protocol

from xxhash import xxh64_intdigest

from emberstate.errors import StateTypeError
from emberstate.keygroups.spark_hash import (
    MAX_LONG_DIGITS,
    SPARK_SEED,
    days_since_epoch,
    hash_bytes,
    hash_double,
    hash_int,
    hash_long,
    hash_string,
    hash_wide_decimal,
    micros_since_epoch,
    pack_long,
)


class Digest(Protocol):
    """Hash one column's value, unsigned; ``seed`` is the hash of the columns before it."""

    def __call__(self, value: Any, seed: int = SPARK_SEED, /) -> int: ...


class KeyColumn(NamedTuple):
    """One column of a key schema, compiled for its type and position."""

    normalise: Callable[[Any], Any]
    digest: Digest


#: Makes the error for a refused value; the second argument is what to do if the type is right.
Refuse = Callable[[object, str], StateTypeError]


def bigint_column(refuse: Refuse) -> KeyColumn:
    """A column of 64-bit ints."""
    out_of_range = "a bigint has 64 bits; declare decimal(38,0) or string"

    def normalise(value: Any) -> int:
        if type(value) is not int or not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
            raise refuse(value, out_of_range)
        return value

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        # Written out rather than hash_long(normalise(value)): this is the hot one, pack checks the range.
        if type(value) is not int:
            raise refuse(value, out_of_range)
        try:
            return xxh64_intdigest(pack_long(value), seed)
        except StructError:
            raise refuse(value, out_of_range) from None

    return KeyColumn(normalise, digest)


def string_column(refuse: Refuse) -> KeyColumn:
    """A column of text."""
    surrogate = (
        "it holds a lone surrogate, which no UTF-8 string of Spark can; decode the bytes it came from with "
        "errors='replace', or declare binary"
    )

    def normalise(value: Any) -> str:
        if type(value) is not str:
            raise refuse(value, surrogate)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise refuse(value, surrogate) from None
        return value

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        if type(value) is not str:
            raise refuse(value, surrogate)
        try:
            return hash_string(value, seed)
        except UnicodeEncodeError:
            raise refuse(value, surrogate) from None

    return KeyColumn(normalise, digest)


def binary_column(refuse: Refuse) -> KeyColumn:
    """A column of bytes."""

    def normalise(value: Any) -> bytes:
        if type(value) is not bytes:
            raise refuse(value, "")
        return value

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_bytes(normalise(value), seed)

    return KeyColumn(normalise, digest)


def boolean_column(refuse: Refuse) -> KeyColumn:
    """A column of booleans."""

    def normalise(value: Any) -> bool:
        if type(value) is not bool:
            raise refuse(value, "")
        return value

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_int(normalise(value), seed)

    return KeyColumn(normalise, digest)


def double_column(refuse: Refuse) -> KeyColumn:
    """A column of floats; -0.0 becomes 0.0."""

    def normalise(value: Any) -> float:
        if type(value) is not float or value != value:
            raise refuse(value, "NaN equals nothing, itself included; filter such rows out before key_by")
        return value + 0.0  # -0.0 + 0.0 is 0.0, and nothing else changes

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_double(normalise(value), seed)

    return KeyColumn(normalise, digest)


def date_column(refuse: Refuse) -> KeyColumn:
    """A column of dates."""

    def normalise(value: Any) -> date:
        if type(value) is not date:
            raise refuse(value, "")
        return value

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_int(days_since_epoch(normalise(value)), seed)

    return KeyColumn(normalise, digest)


def timestamp_column(refuse: Refuse) -> KeyColumn:
    """A column of instants; they become UTC."""
    naive = "it is naive; give it its zone, e.g. key.replace(tzinfo=datetime.UTC), or declare timestamp_ntz"

    def normalise(value: Any) -> datetime:
        # A tzinfo may still know no offset, and then astimezone would assume this machine's zone.
        if type(value) is not datetime or value.utcoffset() is None:
            raise refuse(value, naive)
        try:
            instant = value.astimezone(UTC)
        except OverflowError:
            raise refuse(value, "in UTC it lies outside the years 1 to 9999; declare bigint") from None
        return instant.replace(fold=0) if instant.fold else instant  # UTC has no folds

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_long(micros_since_epoch(normalise(value)), seed)

    return KeyColumn(normalise, digest)


def timestamp_ntz_column(refuse: Refuse) -> KeyColumn:
    """A column of times without a zone."""

    def normalise(value: Any) -> datetime:
        if type(value) is not datetime or value.tzinfo is not None:
            raise refuse(value, "it has a zone; declare timestamp, or drop it with key.replace(tzinfo=None)")
        return value.replace(fold=0) if value.fold else value  # without a zone a fold means nothing

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_long(micros_since_epoch(normalise(value)), seed)

    return KeyColumn(normalise, digest)


def decimal_column(precision: int, scale: int, refuse: Refuse) -> KeyColumn:
    """A column of decimals; they get the declared scale."""
    # Quantizing at exactly the declared precision refuses both a coefficient that is too long and, with
    # Inexact trapped, a fraction that is. The thread's own context must not decide any of it.
    context = decimal.Context(
        prec=precision,
        rounding=decimal.ROUND_HALF_EVEN,
        Emin=-999_999,
        Emax=999_999,
        capitals=1,
        clamp=0,
        flags=[],
        traps=[decimal.Inexact, decimal.InvalidOperation],
    )
    unit = decimal.Decimal((0, (1,), -scale))
    zero = decimal.Decimal((0, (0,), -scale))
    does_not_fit = (
        f"it does not fit {precision} digits, {scale} of them after the point, without rounding; round it "
        f"with quantize, or declare a wider decimal"
    )
    hash_unscaled = hash_long if precision <= MAX_LONG_DIGITS else hash_wide_decimal

    def normalise(value: Any) -> decimal.Decimal:
        if type(value) is not decimal.Decimal or not value.is_finite():
            raise refuse(value, does_not_fit)
        try:
            quantized = value.quantize(unit, context=context)
        except (decimal.Inexact, decimal.InvalidOperation):
            raise refuse(value, does_not_fit) from None
        return quantized or zero  # minus zero is a Decimal too

    def digest(value: Any, seed: int = SPARK_SEED, /) -> int:
        return hash_unscaled(int(normalise(value).scaleb(scale, context)), seed)

    return KeyColumn(normalise, digest)
