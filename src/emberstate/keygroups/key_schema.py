"""The key schema: the declared types of the key columns, with the hash and key group of a key.

Invariants
1. The hash follows the declared types, never the value's: a key that does not fit is refused.
2. ``normalise`` is idempotent; equal canonical keys have one hash and one key group, in any process.
3. A key of one column is the bare value; a key of several is a plain tuple of exactly that many.
4. ``type_names`` determines the schema: it is what equality, pickling and the manifest use.

How it is fast: construction picks closures for the schema and stores them in the instance, so that a call
is one Python frame without ``self``. For a single bigint, string or binary key and a max parallelism
that is a power of two, that frame is the bare xxhash call, one type test and a mask.

Thread safety: immutable after construction, apart from a memo of pure functions; may be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from struct import error as StructError
from typing import Any, Final

from xxhash import xxh64_intdigest

from emberstate.errors import StateDeclarationError
from emberstate.keygroups.key_columns import KeyColumn
from emberstate.keygroups.key_group_range import check_max_parallelism
from emberstate.keygroups.key_types import KeyType, key_type, key_type_of_python
from emberstate.keygroups.refusals import refusal, shape_refusal
from emberstate.keygroups.spark_hash import SPARK_SEED, pack_long, to_signed


class KeySchema:
    """The ordered Spark types of the key columns.

    >>> schema = KeySchema(("string", "int"))
    >>> schema.type_names
    ('string', 'bigint')
    >>> schema.hash64(("a", 1))            # SELECT xxhash64('a', 1L)
    -1010403264180844141
    >>> schema.key_group(("a", 1), 128)
    19
    >>> KeySchema(["double"]).normalise(-0.0)
    0.0
    >>> KeySchema(["bigint"]).check(True)
    Traceback (most recent call last):
        ...
    emberstate.errors.StateTypeError: Key column 1 is declared bigint and takes an int of 64 bits; got ...
    """

    # A dict of slots gives each its docstring.
    __slots__ = {  # noqa: RUF023 - in reading order
        "types": "The types of the columns, in order.",
        "type_names": "Their canonical Spark type names; what the manifest stores.",
        "normalise": "normalise(key): return the canonical key, or raise StateTypeError.",
        "hash64": "hash64(key): return Spark's xxhash64 of the key, signed; raises StateTypeError.",
        "_digest": "The same, unsigned.",
        "_key_groupers": "max parallelism -> key_grouper(max parallelism)",
    }

    types: tuple[KeyType, ...]
    type_names: tuple[str, ...]
    normalise: Callable[[object], Any]
    hash64: Callable[[object], int]
    _digest: Callable[[object], int]
    _key_groupers: dict[int, Callable[[object], int]]

    def __init__(self, type_names: Iterable[str]) -> None:
        """Compile the schema of columns with these Spark types.

        Raises:
            StateDeclarationError: no column, or one whose type cannot be a key.
        """
        if isinstance(type_names, (str, bytes)) or not isinstance(type_names, Iterable):
            raise StateDeclarationError(
                f"A key schema is a sequence of Spark type names, got {type_names!r}; write "
                f"('string',) for a key of one column.",
                option="type_names",
                found=repr(type_names),
            )
        types = tuple(key_type(name) for name in type_names)
        if not types:
            what = "A key needs at least one column; declare its Spark type names."
            raise StateDeclarationError(what, option="type_names", found=())
        names = tuple(kind.name for kind in types)
        columns = [kind.column(partial(refusal, kind, position)) for position, kind in enumerate(types, start=1)]
        normalise, digest = columns[0] if len(columns) == 1 else _composite(names, columns)

        def hash64(key: object) -> int:
            return to_signed(digest(key))

        self._set("types", types)
        self._set("type_names", names)
        self._set("normalise", normalise)
        self._set("hash64", hash64)
        self._set("_digest", digest)
        self._set("_key_groupers", {})

    @classmethod
    def from_python(cls, declared: object) -> KeySchema:
        """Return the schema for a Python type, or for a tuple of them, one per column.

        int is bigint, str string, bytes binary, bool boolean, float double, date date, datetime timestamp.
        A Spark type name may replace a type; a decimal needs one.

        >>> KeySchema.from_python((str, "decimal(10,2)"))
        KeySchema(('string', 'decimal(10,2)'))
        """
        columns = declared if isinstance(declared, tuple) else (declared,)
        return cls([key_type_of_python(column).name for column in columns])

    def check(self, key: object) -> None:
        """Refuse a key that does not fit the declared types.

        Raises:
            StateTypeError: naming the column, what was expected and found, and what to do.
        """
        self.normalise(key)

    def key_group(self, key: object, max_parallelism: int) -> int:
        """Return the key group of ``key``: pmod(hash64(key), max_parallelism).

        Callers in a loop hold on to ``key_grouper(max_parallelism)`` instead.
        """
        grouper = self._key_groupers.get(max_parallelism)
        return (grouper or self.key_grouper(max_parallelism))(key)

    def key_grouper(self, max_parallelism: int) -> Callable[[object], int]:
        """Return the function key -> key group for one max parallelism.

        >>> KeySchema(["bigint"]).key_grouper(100)(7) == KeySchema(["bigint"]).hash64(7) % 100
        True
        """
        check_max_parallelism(max_parallelism)
        grouper = _compile_grouper(self.type_names, self._digest, max_parallelism)
        return self._key_groupers.setdefault(max_parallelism, grouper)

    def require_same(self, stored: Iterable[str]) -> None:
        """Refuse to go on with state whose keys were of the types ``stored``.

        Raises:
            StateDeclarationError: with both schemas.
        """
        before = (stored,) if isinstance(stored, str) else tuple(stored)
        if before != self.type_names:
            raise StateDeclarationError(
                f"The key schema has changed: the stored state has the key columns "
                f"({', '.join(map(str, before))}), this pipeline declares ({', '.join(self.type_names)}). "
                f"Keys may fall into other key groups. Declare the stored types, or start with new state.",
                expected=before,
                found=self.type_names,
            )

    def __eq__(self, other: object) -> bool:
        return self.type_names == other.type_names if isinstance(other, KeySchema) else NotImplemented

    def __hash__(self) -> int:
        return hash((KeySchema, self.type_names))

    def __repr__(self) -> str:
        return f"KeySchema({self.type_names!r})"

    def __reduce__(self) -> tuple[type[KeySchema], tuple[tuple[str, ...]]]:
        return KeySchema, (self.type_names,)  # closures do not pickle; they are compiled anew

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"KeySchema is immutable; cannot set {name!r}.")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"KeySchema is immutable; cannot delete {name!r}.")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _composite(names: tuple[str, ...], columns: list[KeyColumn]) -> KeyColumn:
    """Return several columns as one: a tuple, its hash chained through the columns."""
    width = len(columns)
    normalisers = [column.normalise for column in columns]
    digests = [column.digest for column in columns]

    # zip() without strict=True: the width is checked before, and the keyword alone costs some 300 ns.

    def normalise(key: Any) -> tuple[Any, ...]:
        if type(key) is not tuple or len(key) != width:
            raise shape_refusal(names, key)
        return tuple([canonical(value) for canonical, value in zip(normalisers, key)])  # noqa: B905

    def digest(key: Any, seed: int = SPARK_SEED, /) -> int:
        if type(key) is not tuple or len(key) != width:
            raise shape_refusal(names, key)
        for column_digest, value in zip(digests, key):  # noqa: B905
            seed = column_digest(value, seed)
        return seed

    if width > 2:
        return KeyColumn(normalise, digest)

    # The usual composite, without the loop.
    (normalise_first, digest_first), (normalise_second, digest_second) = columns

    def normalise_pair(key: Any) -> tuple[Any, Any]:
        if type(key) is not tuple or len(key) != 2:
            raise shape_refusal(names, key)
        return normalise_first(key[0]), normalise_second(key[1])

    def digest_pair(key: Any, seed: int = SPARK_SEED, /) -> int:
        if type(key) is not tuple or len(key) != 2:
            raise shape_refusal(names, key)
        return digest_second(key[1], digest_first(key[0], seed))

    return KeyColumn(normalise_pair, digest_pair)


def _compile_grouper(
    names: tuple[str, ...], digest: Callable[[object], int], max_parallelism: int
) -> Callable[[object], int]:
    """Return key -> pmod(signed hash, max_parallelism), as directly as the schema allows.

    If max_parallelism is a power of two, the remainder is the low bits and the sign makes no difference.
    """
    mask: Final = max_parallelism - 1

    def bigint_group(key: object) -> int:
        if type(key) is int:
            try:
                return xxh64_intdigest(pack_long(key), SPARK_SEED) & mask
            except StructError:
                pass
        return digest(key)  # raises: it knows what to say

    def string_group(key: object) -> int:
        if type(key) is str:
            try:
                return xxh64_intdigest(key.encode(), SPARK_SEED) & mask
            except UnicodeEncodeError:
                pass
        return digest(key)

    def binary_group(key: object) -> int:
        return (xxh64_intdigest(key, SPARK_SEED) if type(key) is bytes else digest(key)) & mask

    def masked_group(key: object) -> int:
        return digest(key) & mask

    def general_group(key: object) -> int:
        return to_signed(digest(key)) % max_parallelism  # Python's % is Spark's pmod for m > 0

    if max_parallelism & mask:
        return general_group
    hot: dict[tuple[str, ...], Callable[[object], int]] = {
        ("bigint",): bigint_group,
        ("string",): string_group,
        ("binary",): binary_group,
    }
    return hot.get(names, masked_group)
