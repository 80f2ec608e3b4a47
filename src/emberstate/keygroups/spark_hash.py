"""Spark SQL's ``xxhash64`` in Python, one function per physical type.

Spark's XXH64 is the standard one; the bytes of a value and the combination of columns are Spark's own. Both are
reproduced here and tested with golden vectors that Spark computed.

Invariants
1. Every function takes the running hash as ``seed`` and returns the next one, unsigned. The first column
   starts at ``SPARK_SEED``; the hash of column i is the seed of column i + 1.
2. Only ``to_signed`` makes the signed number that Spark shows; the key group is its positive remainder.
3. The functions are part of the storage format and never change.

They trust their input: canonical values, as ``key_columns`` makes them. The caller casts
(Spark hashes int 1 and bigint 1 differently; a key is always bigint).

Thread safety: pure functions.

>>> to_signed(hash_string("a"))                   # SELECT xxhash64('a')
-8582455328737087284
>>> to_signed(hash_long(1, hash_string("a")))     # SELECT xxhash64('a', 1L)
-1010403264180844141
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from struct import Struct
from typing import Final

from xxhash import xxh64_intdigest

#: The seed of SQL's xxhash64(...), fixed in Spark.
SPARK_SEED: Final = 42

#: Decimals up to this precision are hashed as a long, wider ones as bytes.
MAX_LONG_DIGITS: Final = 18

pack_int: Final = Struct("<i").pack
pack_long: Final = Struct("<q").pack
pack_double: Final = Struct("<d").pack

_EPOCH_NAIVE: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def hash_int(value: int, seed: int = SPARK_SEED) -> int:
    """Hash a 32-bit value: boolean (1 or 0) and date (days)."""
    return xxh64_intdigest(pack_int(value), seed)


def hash_long(value: int, seed: int = SPARK_SEED) -> int:
    """Hash a 64-bit value: bigint, timestamp and timestamp_ntz (microseconds), narrow decimals."""
    return xxh64_intdigest(pack_long(value), seed)


def hash_double(value: float, seed: int = SPARK_SEED) -> int:
    """Hash a double as its bits; -0.0 must have been made 0.0 and NaN refused before."""
    return xxh64_intdigest(pack_double(value), seed)


def hash_bytes(value: bytes, seed: int = SPARK_SEED) -> int:
    """Hash a binary."""
    return xxh64_intdigest(value, seed)


def hash_string(value: str, seed: int = SPARK_SEED) -> int:
    """Hash a string as UTF-8, without any Unicode normalisation: NFC and NFD are two keys, as in Spark."""
    # Encoded here because xxhash 4 refuses str; encode() also leaves no UTF-8 copy cached on the str.
    return xxh64_intdigest(value.encode(), seed)


def hash_wide_decimal(unscaled: int, seed: int = SPARK_SEED) -> int:
    """Hash the unscaled value of a decimal of more than 18 digits of precision."""
    return xxh64_intdigest(big_integer_bytes(unscaled), seed)


def big_integer_bytes(value: int) -> bytes:
    """Return what Java's ``BigInteger.toByteArray`` returns: the shortest big-endian two's complement.

    >>> [big_integer_bytes(n).hex() for n in (0, 127, 128, -128, -129)]
    ['00', '7f', '0080', '80', 'ff7f']
    """
    magnitude = value if value >= 0 else ~value
    return value.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def days_since_epoch(value: date) -> int:
    """Return the days since 1970-01-01, in the proleptic Gregorian calendar, as Spark counts them."""
    return value.toordinal() - _EPOCH_ORDINAL


def micros_since_epoch(value: datetime) -> int:
    """Return the microseconds since 1970-01-01 00:00:00, of the instant if aware, of the wall if naive.

    Integer arithmetic only: ``datetime.timestamp()`` goes through a float and is off by microseconds
    far from 1970.

    >>> micros_since_epoch(datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
    253402300799999999
    """
    delta = value - (_EPOCH_NAIVE if value.tzinfo is None else _EPOCH_UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def to_signed(digest: int) -> int:
    """Return the unsigned 64-bit ``digest`` as the signed number that Spark shows."""
    return digest if digest < 0x8000_0000_0000_0000 else digest - 0x1_0000_0000_0000_0000
