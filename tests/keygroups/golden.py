"""Keys for the golden vectors: how they are made, written as text, and hashed by Spark.

Shared by ``make_golden.py``, which writes the vectors once, and the tests. Text is decoded here without
the library, so that a mistake in the library's own conversions cannot hide.

A column is named by its *source* type ("int", "float", ...); the library's casts (integers to bigint, float
to double, -0.0 to 0.0) are applied in Spark before hashing. Every value reaches Spark as text or as an
integer and is converted by SQL, so that no client conversion can shift it between calendars or zones.
"""

from __future__ import annotations

import datetime as dt
import random
import struct
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emberstate.keygroups.key_types import key_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOLDEN_FILE = Path(__file__).with_name("golden_vectors.json")

#: A zone far from UTC with odd offsets in its past: if it mattered, the vectors would show it.
SESSION_TIME_ZONE = "America/St_Johns"

#: Powers of two, and numbers where the sign of the hash would show.
PMOD_SAMPLES = (1, 7, 100, 128, 720, 32768)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_MIN_MICROS = (dt.datetime.min.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
_MAX_MICROS = (dt.datetime.max.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
_MIN_DAYS, _MAX_DAYS = (day.toordinal() - 719163 for day in (dt.date.min, dt.date.max))
_DAY = 86_400_000_000

_STRINGS = [
    "", "a", "A", "key", " ", "a\0b", "\0", "\x7f", "\x80", "ß", "ẞ", "ı", "İ", "\u200d", "\ufeff", "\uffff",
    "é", "e\u0301", "Å", "A\u030a", "\u212b", "한글", "\u1112\u1161\u11ab", "ﬁ", "fi", "日本語", "العربية",
    "😀", "👩‍👩‍👧", "🇩🇪", "\U0010ffff", "0", "1", "1.0", "true", "null", "None", "NaN",
]  # fmt: skip
_ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyz0123456789-_",
    "äöüéèñçß",
    "日本語漢字仮名",
    "😀🎉🔥🦊",
    "\0\t\n\"\\'",
]


def edge_values(source: str) -> Iterator[Any]:
    """Yield the values of a type where implementations differ."""
    if source in _INTEGER_BITS:
        bits = _INTEGER_BITS[source]
        powers = {sign * (1 << n) + d for n in range(bits) for d in (-1, 0, 1) for sign in (1, -1)}
        yield from sorted(n for n in powers if -(1 << (bits - 1)) <= n < 1 << (bits - 1))
    elif source in ("double", "float"):
        yield from (0.0, -0.0, 1.0, -1.0, 0.5, float("inf"), float("-inf"), 2.0**-149, 2.0**127, 2.0**24 + 2)
        if source == "double":
            yield from (5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, 2.0**53 + 2, 1e16, 1e22)
    elif source == "string":
        yield from _STRINGS
        for text in _STRINGS:
            yield unicodedata.normalize("NFC", text + "e\u0301")
            yield unicodedata.normalize("NFD", text + "é")
        for length in range(1, 101):  # across the 4, 8 and 32 byte steps of XXH64
            yield "k" * length
            yield "ü" * length
    elif source == "binary":
        yield from (bytes(length) for length in range(101))
        yield from (b"\xff" * length for length in range(101))
    elif source == "boolean":
        yield from (True, False)
    elif source == "date":
        for days in (_MIN_DAYS, _MAX_DAYS, -1, 0, 1, -141428, -141427, -141426, -719162):  # 1582-10-14..16
            yield dt.date.fromordinal(days + 719163)
    elif source in ("timestamp", "timestamp_ntz"):
        edges = [
            _MIN_MICROS,
            _MAX_MICROS,
            -1,
            0,
            1,
            -999_999,
            -1_000_000,
            -1_000_001,
            2**31 * 10**6,
            2**53 + 1,
        ]
        edges += [-141427 * _DAY + d for d in (-1, 0, 1)]
        for micros in edges:
            yield _datetime(micros, source)
    else:
        precision, scale = _decimal(source)
        top = 10**precision - 1
        edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]
        edges += [sign * 2**n + d for n in range(7, 127, 8) for d in (-1, 0) for sign in (1, -1)]
        for unscaled in sorted({n for n in [*edges, top, -top, top - 1] if -top <= n <= top}):
            yield _from_unscaled(unscaled, scale)


def random_value(source: str, rng: random.Random) -> Any:
    """Return a random value of a type, of a random magnitude."""
    if source in _INTEGER_BITS:
        return _random_int(rng, _INTEGER_BITS[source] - 1)
    if source == "double":
        value = struct.unpack("<d", rng.randbytes(8))[0] if rng.random() < 0.5 else rng.uniform(-1e6, 1e6)
        return 0.0 if value != value else value
    if source == "float":
        value = struct.unpack("<f", rng.randbytes(4))[0]
        return 0.0 if value != value else value
    if source == "string":
        length = rng.choice((rng.randrange(8), rng.randrange(24), rng.randrange(24), rng.randrange(80)))
        return "".join(rng.choice(rng.choice(_ALPHABETS)) for _ in range(length))
    if source == "binary":
        return rng.randbytes(rng.randrange(80))
    if source == "boolean":
        return rng.random() < 0.5
    if source == "date":
        return dt.date.fromordinal(rng.randint(_MIN_DAYS, _MAX_DAYS) + 719163)
    if source in ("timestamp", "timestamp_ntz"):
        recent = rng.randint(-(10**15), 2 * 10**15)
        return _datetime(rng.choice((recent, rng.randint(_MIN_MICROS, _MAX_MICROS))), source)
    precision, scale = _decimal(source)
    digits = rng.randint(1, precision)
    return _from_unscaled(rng.randint(-(10**digits) + 1, 10**digits - 1), scale)


def to_text(source: str, value: Any) -> str:
    """Write a value as the text that the golden file and Spark's SQL take."""
    if source == "binary":
        return str(value.hex())
    if source == "boolean":
        return "true" if value else "false"
    if source == "date":
        return str(value.toordinal() - 719163)
    if source == "timestamp":
        return str((value - _EPOCH) // dt.timedelta(microseconds=1))
    if source == "timestamp_ntz":
        return str(value.isoformat(sep=" ", timespec="microseconds"))
    if source.startswith("decimal"):
        return format(value, "f")
    return repr(value) if isinstance(value, float) else str(value)


def from_text(source: str, text: str) -> Any:
    """Read a value back."""
    if source == "date":
        return dt.date.fromordinal(int(text) + 719163)
    if source == "timestamp":
        return _datetime(int(text), source)
    if source.startswith("decimal"):
        return Decimal(text)
    readers: dict[str, Callable[[str], Any]] = {
        "string": str,
        "binary": bytes.fromhex,
        "boolean": lambda text: text == "true",
        "timestamp_ntz": dt.datetime.fromisoformat,
        "double": float,
        "float": float,
    }
    return readers.get(source, int)(text)


def key_of(sources: Sequence[str], texts: Sequence[str]) -> Any:
    """Return the key that a user would pass: the bare value, or a tuple."""
    values = tuple(from_text(source, text) for source, text in zip(sources, texts, strict=True))
    return values if len(values) > 1 else values[0]


def spark_hashes(
    spark: SparkSession, sources: Sequence[str], keys: Sequence[Sequence[str]]
) -> list[tuple[int, list[int]]]:
    """Return (xxhash64, [its pmod for each of PMOD_SAMPLES]) of each key, computed by Spark."""
    pa = import_module("pyarrow")  # not at the top: only Spark's own tests need it

    columns = {f"c{i}": pa.array([key[i] for key in keys], pa.string()) for i in range(len(sources))}
    table = spark.createDataFrame(pa.table({"row": pa.array(range(len(keys)), pa.int64()), **columns}))
    typed = table.selectExpr("row", *[f"{_sql(source, f'c{i}')} AS k{i}" for i, source in enumerate(sources)])
    cast = ", ".join(_library_cast(source, f"k{i}") for i, source in enumerate(sources))
    hashed = typed.selectExpr("row", f"xxhash64({cast}) AS h")
    result = hashed.selectExpr("row", "h", *[f"pmod(h, {m}) AS m{m}" for m in PMOD_SAMPLES]).orderBy("row")
    return [(row["h"], [row[f"m{m}"] for m in PMOD_SAMPLES]) for row in result.collect()]


def local_spark(application: str) -> SparkSession:
    """Start a small local Spark."""
    from pyspark.sql import SparkSession

    from emberstate.spark.java import ensure_java

    ensure_java()
    builder = SparkSession.builder.master("local[1]").appName(application)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": SESSION_TIME_ZONE,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _sql(source: str, column: str) -> str:
    """Return the SQL that turns a column of text into the source type."""
    if source == "string":
        return column
    if source == "binary":
        return f"unhex({column})"
    if source == "date":
        return f"date_from_unix_date(CAST({column} AS int))"
    if source == "timestamp":
        return f"timestamp_micros(CAST({column} AS bigint))"
    return f"CAST({column} AS {source})"


def _library_cast(source: str, column: str) -> str:
    """Return the SQL of the cast that the library applies to a key column before hashing."""
    if source in _INTEGER_BITS:
        return f"CAST({column} AS bigint)"
    if source in ("double", "float"):
        return f"CASE WHEN {column} = 0 THEN 0D ELSE CAST({column} AS double) END"
    return column


def _random_int(rng: random.Random, bits: int) -> int:
    """Return a signed integer of up to ``bits`` bits, small ones as likely as large ones."""
    magnitude = rng.getrandbits(rng.randint(1, bits))
    return magnitude if rng.random() < 0.5 else -magnitude - 1


def _datetime(micros: int, source: str) -> dt.datetime:
    value = _EPOCH + dt.timedelta(microseconds=micros)
    return value if source == "timestamp" else value.replace(tzinfo=None)


def _decimal(source: str) -> tuple[int, int]:
    kind = key_type(source)
    assert kind.python_type is Decimal, source
    return kind.precision, kind.scale


def _from_unscaled(unscaled: int, scale: int) -> Decimal:
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((unscaled < 0, digits, -scale))
