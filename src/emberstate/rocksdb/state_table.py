"""`RocksDBStateTable`: the pairs of one state: how they are encoded, which pairs form an entry, what has changed.

An entry (key, namespace) is one pair for a value (also a folded one), a pair per element for a list, and a pair per
user key for a map. `raw_keys` has the layout of their keys. A value is its codec's bytes; a user value that is None is
empty; with time to live an eight-byte stamp precedes it. An entry without pairs does not exist.

Thread safety: the backend's owner thread; any thread may call `entries`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from emberstate.codec import Codec
from emberstate.errors import CodecError, EmberstateError, InvariantError, StateTypeError
from emberstate.rocksdb.current_entry import CurrentEntry, CurrentKey
from emberstate.rocksdb.raw_keys import (
    entry_of,
    entry_prefix,
    group_prefix,
    key_part,
    sized,
    split,
    successor,
    table_prefix,
)
from emberstate.rocksdb.store import Point, RocksDBStore
from emberstate.state.cells.scalars import ScalarEncoder, encoder_of
from emberstate.state.changes import EntryChange, Op
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from emberstate.state.key_bytes import key_bytes
from emberstate.state.key_context import KeyContext
from emberstate.state.ttl.stamped import Stamped

_STAMP: Final = struct.Struct(">q")
_CLEARED: Final = (Op.CLEARED,)
#: After this many pairs of one entry, the search for the next entry seeks instead of advancing.
_WALK: Final = 8

VALUE: Final = "value"
LIST: Final = "list"
MAP: Final = "map"


class Tables:
    """Shared by the tables of one backend: store, current key, and the codec of keys."""

    __slots__ = ("context", "decode_key", "encode_key", "keys", "store")

    def __init__(self, store: RocksDBStore, context: KeyContext) -> None:
        self.store = store
        self.context = context
        codec = key_bytes(context.key_schema)
        self.encode_key = codec.encode
        self.decode_key = codec.decode
        self.keys = CurrentKey(context, codec.encode)


class RocksDBStateTable:
    """The pairs of one state."""

    __slots__ = (
        "decode", "decode_present", "disturbances", "encode", "encode_present", "gained", "label", "name",
        "namespace_codec", "number", "prefix", "shape", "structure", "tables", "user_key_codec", "walking",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        name: str,
        label: str,
        shape: str,
        tables: Tables,
        namespace_codec: Codec[Any],
        codec: Codec[Any] | None,
        user_key_codec: Codec[Any] | None,
        *,
        stamped: bool,
    ) -> None:
        """A table for entries of `shape`; `codec` is None for a set of timers."""
        self.number = number
        self.name = name
        self.label = label
        self.shape = shape
        self.tables = tables
        self.prefix = table_prefix(number)
        self.namespace_codec = namespace_codec
        self.user_key_codec = user_key_codec
        self.encode, self.decode = _value_functions(codec, stamped=stamped, optional=shape == MAP)
        #: The same for user values of a map that are not None: those are no bytes.
        self.encode_present, self.decode_present = ScalarEncoder(self.encode, None), self.decode
        if codec is not None and not stamped:
            self.encode_present, self.decode_present = encoder_of(codec), codec.decode
        #: Iterations over maps that are under way; while there are any, writes are noted for them.
        self.walking = 0
        #: Entry prefix → how often the map gained or lost a user key during iterations.
        self.structure: dict[bytes, int] = {}
        #: Writes during iterations.
        self.disturbances = 0
        #: `changes` adds the number of entries gained (lost: negative) since its point.
        self.gained = 0

    @classmethod
    def of(
        cls, number: int, descriptor: StateDescriptor, tables: Tables, namespace_codec: Codec[Any]
    ) -> RocksDBStateTable:
        """The table of a declared state."""
        shape, user_key_codec = VALUE, None
        if isinstance(descriptor, ListStateDescriptor):
            shape = LIST
        elif isinstance(descriptor, MapStateDescriptor):
            shape, user_key_codec = MAP, descriptor.key_codec
        return cls(
            number,
            descriptor.name,
            f"{descriptor.kind} state {descriptor.name!r}",
            shape,
            tables,
            namespace_codec,
            descriptor.codec,
            user_key_codec,
            stamped=descriptor.ttl is not None,
        )

    # -- the current key ------------------------------------------------------------------------------------

    def entry(self, namespace: Hashable) -> CurrentEntry:
        """The current key's entry in a namespace."""
        return CurrentEntry(self.tables.keys, self.name, self.prefix, self.namespace_part(namespace))

    def namespace_part(self, namespace: Hashable) -> bytes:
        """A namespace in a raw key."""
        return sized(self.namespace_codec.encode(namespace))

    def refusal(self, error: EmberstateError) -> StateTypeError:
        """Return the error to raise for a value that cannot be encoded."""
        key = self.tables.context.key
        return StateTypeError(f"{self.label}, key {key!r}: {error}", state=self.name, key=key, field=error.field)

    def encoded(self, value: Any) -> bytes:
        """Return a value as it is stored; raises StateTypeError if it is not of its type at any depth."""
        try:
            return self.encode(value)
        except (StateTypeError, CodecError) as error:
            raise self.refusal(error) from None

    # -- all keys -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(1 for _ in self._entry_keys())

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, content), key groups ascending."""
        return self._contents(self.tables.store.scan(self.prefix))

    def entries(self, key_group: int, point: Point) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, content) of one key group at `point`, from any thread."""
        return self._contents(point.scan(group_prefix(self.prefix, key_group)))

    def entry_columns(self, key_group: int, point: Point) -> None:
        """None: the pairs are in no columns."""

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`, key groups ascending; O(all entries)."""
        wanted = self.namespace_codec.encode(namespace)
        decode = self.tables.decode_key
        for raw in self._entry_keys():
            _, key, found, _ = split(raw)
            if found == wanted:
                yield decode(key)

    def keys_and_namespaces(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the (key, namespace) pairs that have an entry, key groups ascending; O(all entries)."""
        for raw in self._entry_keys():
            _, key, namespace, _ = split(raw)
            yield self.tables.decode_key(key), self.namespace_codec.decode(namespace)

    def _entry_keys(self) -> Iterator[bytes]:
        """Iterate over one raw key of every entry, in order; raises on a foreign thread and after close."""
        check_open = self.tables.context.check_open
        cursor = self.tables.store.cursor(self.prefix)
        raw = cursor.key()
        while raw is not None:
            yield raw
            check_open()
            entry, steps = entry_of(raw), 0
            while raw is not None and raw.startswith(entry):
                if steps < _WALK:
                    cursor.advance()
                else:
                    cursor.seek(successor(entry))
                steps += 1
                raw = cursor.key()
        cursor.check()

    def _contents(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any, Any]]:
        decode_key, decode_namespace, decode = self.tables.decode_key, self.namespace_codec.decode, self.decode
        if self.shape == VALUE:
            for raw, value in pairs:
                _, key, namespace, _ = split(raw)
                yield decode_key(key), decode_namespace(namespace), decode(value)
            return
        for entry, of_entry in itertools.groupby(pairs, key=_entry_of_pair):
            _, key, namespace, _ = split(entry)
            yield decode_key(key), decode_namespace(namespace), self._content(len(entry), of_entry)

    def _content(self, start: int, pairs: Iterable[tuple[bytes, bytes]]) -> Any:
        """The list or dict of an entry's pairs; the rest of their keys begins at `start`."""
        decode = self.decode
        if self.user_key_codec is None:
            return [decode(value) for _, value in pairs]
        decode_user_key = self.user_key_codec.decode
        return {decode_user_key(raw[start:]): decode(value) for raw, value in pairs}

    # -- points in time -------------------------------------------------------------------------------------

    def changes(self, touched: Iterable[bytes], point: Point) -> Iterator[tuple[int, EntryChange]]:
        """(key group, record) for every entry with `touched` keys, which ascend, that differs from `point`."""
        steps_of: Callable[[bytes, Iterator[bytes], Point], tuple[tuple[Any, ...], ...]] = {
            VALUE: self._value_steps,
            LIST: self._list_steps,
            MAP: self._map_steps,
        }[self.shape]
        for entry, raws in itertools.groupby(touched, key=entry_of):
            steps = steps_of(entry, raws, point)
            if steps:
                group, key, namespace, _ = split(entry)
                yield group, (self.tables.decode_key(key), self.namespace_codec.decode(namespace), steps)

    def _value_steps(self, entry: bytes, raws: Iterator[bytes], point: Point) -> tuple[tuple[Any, ...], ...]:
        old, new = point.read(entry), self.tables.store.get(entry)
        if old == new:
            return ()
        self.gained += (new is not None) - (old is not None)
        return (_CLEARED,) if new is None else ((Op.REPLACED, self.decode(new)),)

    def _list_steps(self, entry: bytes, raws: Iterator[bytes], point: Point) -> tuple[tuple[Any, ...], ...]:
        """The elements appended; if an element is gone: cleared, then the whole new list."""
        store = self.tables.store
        appended = []
        for raw in raws:
            old, new = point.read(raw), store.get(raw)
            if old is not None and new is None:
                elements = self._content(len(entry), store.scan(entry))
                self.gained += bool(elements) - 1
                return (_CLEARED, (Op.APPENDED, elements)) if elements else (_CLEARED,)
            if old is None and new is not None:
                appended.append(self.decode(new))
        if not appended:
            return ()
        self.gained += 1 - point.holds(entry)
        return ((Op.APPENDED, appended),)

    def _map_steps(self, entry: bytes, raws: Iterator[bytes], point: Point) -> tuple[tuple[Any, ...], ...]:
        """The user keys put and removed; cleared, if none is left."""
        assert self.user_key_codec is not None
        store = self.tables.store
        decode_user_key, start = self.user_key_codec.decode, len(entry)
        steps: list[tuple[Any, ...]] = []
        puts = 0
        was_there = False
        for raw in raws:
            old, new = point.read(raw), store.get(raw)
            was_there = was_there or old is not None
            if new == old:
                continue
            user_key = decode_user_key(raw[start:])
            if new is None:
                steps.append((Op.REMOVED, user_key))
            else:
                steps.append((Op.PUT, user_key, self.decode(new)))
                puts += 1
        if not steps:
            return ()
        absent = not puts and self.is_absent(entry)
        self.gained += (not absent) - (was_there or point.holds(entry))
        return (_CLEARED,) if absent else tuple(steps)

    def is_absent(self, entry: bytes) -> bool:
        """Whether an entry has no pairs."""
        cursor = self.tables.store.cursor(entry)
        absent = cursor.key() is None
        cursor.check()
        return absent

    def remove_pair(self, raw: bytes) -> None:
        """Delete a pair that exists; an iteration over its map notices."""
        if self.walking:
            self.restructured(entry_of(raw))
        self.tables.store.delete(raw)

    def restructured(self, entry: bytes) -> None:
        """Note, for iterations under way, that an entry gained or lost a pair."""
        self.disturbances += 1
        self.structure[entry] = self.structure.get(entry, 0) + 1

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a pair cannot be read or is in a foreign group. O(all pairs)."""
        context = self.tables.context
        for raw, value in self.tables.store.scan(self.prefix):
            group, key, namespace, rest = split(raw)
            decoded = self.tables.decode_key(key)
            context.check_group(decoded, group)
            context.key_group_range.check(group)
            self.namespace_codec.decode(namespace)
            self.decode(value)
            part = key_part(group, self.tables.encode_key(decoded))
            if raw != entry_prefix(self.prefix, part, sized(namespace)) + rest:
                raise InvariantError(f"{self.label}: {raw!r} is not how key {decoded!r} is written", state=self.name)
            if self.user_key_codec is not None:
                self.user_key_codec.decode(rest)
            elif len(rest) != (8 if self.shape == LIST else 0):
                what = f"{self.label}: {raw!r} has {len(rest)} bytes too many or too few"
                raise InvariantError(what, state=self.name)


def stamp_of(data: bytes) -> int:
    """The stamp of a value as it is stored with time to live."""
    stamp: int = _STAMP.unpack_from(data)[0]
    return stamp


def _entry_of_pair(pair: tuple[bytes, bytes]) -> bytes:
    return entry_of(pair[0])


def _value_functions(
    codec: Codec[Any] | None, *, stamped: bool, optional: bool
) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """The functions that encode and decode values."""
    if codec is None:
        return (lambda value: b""), (lambda data: True)
    encode, decode = codec.encode, codec.decode
    if not optional and not stamped:
        return encode, decode

    def encode_optional(value: Any) -> bytes:
        return b"" if value is None else encode(value)

    def decode_optional(data: bytes) -> Any:
        return decode(data) if data else None

    if not stamped:
        return encode_optional, decode_optional
    pack, unpack = _STAMP.pack, _STAMP.unpack_from

    def encode_stamped(stamped: Stamped) -> bytes:
        return pack(stamped.stamp) + encode_optional(stamped.value)

    def decode_stamped(data: bytes) -> Stamped:
        return Stamped(decode_optional(data[8:]), unpack(data)[0])

    return encode_stamped, decode_stamped


