"""`RocksDBTimerQueue`: timers in RocksDB, each stored twice: by key, and in firing order.

By key, they are a map from (time, name, namespace) in a `RocksDBStateTable`, which snapshots and changes read. In
order, they are a pair per timer whose key sorts as timers fire: by time, key, name and namespace (`ordered_keys`); its
value has the key and the timer.

The next few timers are held in memory, so that finding the next one seldom asks RocksDB, and never walks over the
tombstones of timers that fired.

Invariants: both have the same timers; `_heads` ascends and has exactly the timers before `_until`.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable, Iterable, Iterator
from types import GenericAlias
from typing import Any, Final

from emberstate.codec import Codec, OpaqueCodec, TypeSchema, key_codec_for, opaque_timer_codec
from emberstate.errors import InvariantError
from emberstate.rocksdb.ordered_keys import OrderedKeys, ordered_int, ordered_text
from emberstate.rocksdb.raw_keys import (
    entry_prefix,
    group_prefix,
    key_part,
    sized,
    split,
    successor,
    table_prefix,
    unsized,
)
from emberstate.rocksdb.state_table import MAP, RocksDBStateTable, Tables
from emberstate.state.timers import VOID_NAMESPACE, Timer, TimerQueue

#: Timers read ahead; at most twice as many are held.
HEADS: Final = 128

_VOID: Final = key_codec_for(type(VOID_NAMESPACE), where="namespace of timers")


def _timer_codec(namespace_codec: Codec[Any]) -> Codec[Any]:
    """The codec of (time, name, namespace)."""
    codec = key_codec_for(GenericAlias(tuple, (int, str, namespace_codec.type)), where="timer")
    if isinstance(namespace_codec, OpaqueCodec):
        return opaque_timer_codec(TypeSchema("tuple", (*codec.schema.items[:2], namespace_codec.schema)))
    return codec


class RocksDBTimerQueue(TimerQueue):
    """Timers over two tables, with namespaces of one type."""

    __slots__ = (
        "_encode_timer", "_entry", "_generation", "_heads", "_order", "_ordered_key", "_store", "_tables", "_until",
        "_values",
    )  # fmt: skip

    table: RocksDBStateTable

    def __init__(self, number: int, name: str, tables: Tables, namespace_codec: Codec[Any]) -> None:
        """Make a queue; it uses the tables `number` and `number + 1`."""
        timer_codec = _timer_codec(namespace_codec)
        table = RocksDBStateTable(
            number, name, f"timer queue {name!r}", MAP, tables, _VOID, None, timer_codec, stamped=False
        )
        super().__init__(table, namespace_codec, str.encode)
        self._encode_timer = timer_codec.encode
        self._entry = self.table.entry(VOID_NAMESPACE)
        self._tables = tables
        self._store = tables.store
        self._order = table_prefix(number + 1)
        self._ordered_key = OrderedKeys(tables.context.key_schema).encode
        self._heads: list[bytes] = []
        self._values: dict[bytes, bytes] = {}  # of the heads
        self._until = self._order
        self._generation = tables.store.pairs.generation

    # -- the current key ------------------------------------------------------------------------------------

    def register(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""
        timer = self._encode_timer(self._checked(time, name, namespace))
        raw = self._entry.current() + timer
        if self._store.get(raw) is not None:
            return False
        order = self._order_of(self._tables.context.key, time, name, namespace)
        value = self._tables.keys.current(self.table.name) + timer
        self._store.put(raw, b"")
        self._store.put(order, value)
        self._forget_if_rolled_back()
        if order < self._until:
            bisect.insort(self._heads, order)
            self._values[order] = value
            if len(self._heads) > 2 * HEADS:
                self._shorten()
        self._registered += 1
        return True

    def delete(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""
        raw = self._entry.current() + self._encode_timer(self._checked(time, name, namespace))
        if self._store.get(raw) is None:
            return False
        order = self._order_of(self._tables.context.key, time, name, namespace)
        self._store.delete(raw)
        self._store.delete(order)
        self._forget_if_rolled_back()
        if self._values.pop(order, None) is not None:
            del self._heads[bisect.bisect_left(self._heads, order)]
        self._deleted += 1
        return True

    # -- all keys -------------------------------------------------------------------------------------------

    def peek(self) -> Timer | None:
        """The timer that fires next, or None."""
        return None if self._fill() is None else self._first()[0]

    def poll(self, until: int) -> Timer | None:
        """Remove and return the next timer if its time is at most `until`; its key becomes current."""
        head = self._fill()
        if head is None:
            return None
        timer, group = self._first()
        if timer.time > until:
            return None
        self._tables.context.set_current_key_and_group(timer.key, group)
        raw = self._entry.current() + self._encode_timer((timer.time, timer.name, timer.namespace))
        self._store.delete(raw)
        self._store.delete(head)
        del self._heads[0], self._values[head]
        self._fired += 1
        return timer

    def timers_of_group(self, key_group: int) -> Iterator[Timer]:
        """The timers of one owned key group, by key."""
        self._tables.context.check_open()
        self._tables.context.key_group_range.check(key_group)
        return self._timers_of_group(key_group)

    def _timers_of_group(self, key_group: int) -> Iterator[Timer]:
        for raw, _ in self._store.scan(group_prefix(self.table.prefix, key_group)):
            _, key, _, timer = split(raw)
            time, name, namespace = self._decode_timer(timer)
            yield Timer(time, self._tables.decode_key(key), name, namespace)
            self._tables.context.check_open()

    def __len__(self) -> int:
        self._tables.context.check_open()
        return sum(1 for _ in self._store.scan(self.table.prefix))

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the two tables or the heads disagree. O(timers)."""
        self.table.check_invariants()
        self._forget_if_rolled_back()
        ordered = dict(self._store.scan(self._order))
        by_key = {}
        for raw, _ in self._store.scan(self.table.prefix):
            group, key, _, timer = split(raw)
            time, name, namespace = self._decode_timer(timer)
            order = self._order_of(self._tables.decode_key(key), time, name, namespace)
            by_key[order] = group.to_bytes(2, "big") + sized(key) + timer
        if ordered != by_key:
            queue = self.table.name
            raise InvariantError(f"queue {queue!r}: the timers by key differ from those in order", state=queue)
        before = {order: value for order, value in ordered.items() if order < self._until}
        if self._heads != sorted(before) or self._values != before:
            queue = self.table.name
            raise InvariantError(f"queue {queue!r}: the timers read ahead are not the next ones", state=queue)

    # -- restoring ------------------------------------------------------------------------------------------

    def load(self, key_group: int, key: Any, timer: tuple[int, str, Any]) -> None:
        """Put a timer of any key."""
        order, raw, value = self._pairs(key_group, key, timer)
        self._store.put(raw, b"")
        self._store.put(order, value)
        self._drop_heads()

    def unload(self, key_group: int, key: Any, timer: tuple[int, str, Any]) -> None:
        """Remove a timer of any key, if it exists."""
        order, raw, _ = self._pairs(key_group, key, timer)
        self._store.delete(raw)
        self._store.delete(order)
        self._drop_heads()

    def _pairs(self, key_group: int, key: Any, timer: tuple[int, str, Any]) -> tuple[bytes, bytes, bytes]:
        """The raw key in order, the raw key by key, and the value in order, of a timer."""
        time, name, namespace = timer
        part = key_part(key_group, self._tables.encode_key(key))
        encoded = self._encode_timer(timer)
        void = self.table.namespace_part(VOID_NAMESPACE)
        raw = entry_prefix(self.table.prefix, part, void) + encoded
        return self._order_of(key, time, name, namespace), raw, part + encoded

    # -- inside ---------------------------------------------------------------------------------------------

    def _of_current_key(self) -> tuple[Any, Iterable[tuple[int, str, Any]]]:
        prefix = self._entry.current()
        timers = [self._decode_timer(raw[len(prefix) :]) for raw, _ in self._store.scan(prefix)]
        return self._tables.context.key, timers

    def _decode_timer(self, timer: bytes) -> tuple[int, str, Any]:
        decoded: tuple[int, str, Any] = self.table.user_key_codec.decode(timer)  # type: ignore[union-attr]
        return decoded

    def _order_of(self, key: Any, time: int, name: str, namespace: Hashable) -> bytes:
        ordered: bytes = ordered_int(time) + self._ordered_key(key) + ordered_text(name) + self._rank(namespace)
        return self._order + ordered

    def _first(self) -> tuple[Timer, int]:
        """The first of the heads, and its key group."""
        value = self._values[self._heads[0]]
        key, timer = unsized(value[2:])
        time, name, namespace = self._decode_timer(timer)
        group = int.from_bytes(value[:2], "big")
        return Timer(time, self._tables.decode_key(key), name, namespace), group

    def _fill(self) -> bytes | None:
        """Read ahead if there are no heads; returns the first, or None if there is no timer."""
        self._tables.context.check_open()
        self._forget_if_rolled_back()
        if not self._heads:
            end = successor(self._order)
            if self._until >= end:
                return None
            cursor = self._store.cursor(self._order)
            cursor.seek(self._until)
            raw = cursor.key()
            while raw is not None and len(self._heads) < HEADS:
                self._heads.append(raw)
                self._values[raw] = cursor.value()
                cursor.advance()
                raw = cursor.key()
            cursor.check()
            self._until = end if raw is None else raw
            if not self._heads:
                return None
        return self._heads[0]

    def _shorten(self) -> None:
        """Drop the heads beyond `HEADS`."""
        for order in self._heads[HEADS:]:
            del self._values[order]
        self._until = self._heads[HEADS]
        del self._heads[HEADS:]

    def _forget_if_rolled_back(self) -> None:
        """Drop the heads after a roll-back."""
        if self._generation != self._store.pairs.generation:
            self._generation = self._store.pairs.generation
            self._drop_heads()

    def _drop_heads(self) -> None:
        self._heads.clear()
        self._values.clear()
        self._until = self._order
