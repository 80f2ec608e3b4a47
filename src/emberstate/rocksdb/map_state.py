# cython: boundscheck=False, wraparound=False
"""`RocksDBMapState`: a map state in RocksDB, one pair per user key, iterated in the order of the user keys' bytes.

A put reads nothing. As with a dict, an iteration raises when user keys were added or removed meanwhile, and sees
values as they are when it reaches them: so writes read first, but only while iterations are under way.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, Final

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import CodecError, StateTypeError
from emberstate.rocksdb.current_entry import CurrentEntry
from emberstate.rocksdb.pair_access import PairAccess
from emberstate.state.cells.scalars import ScalarEncoder, encoder_of
from emberstate.state.internal_states import InternalMapState
from emberstate.state.key_context import KeyContext

if TYPE_CHECKING:
    from emberstate.rocksdb.state_table import RocksDBStateTable

_BEGUN: Final = object()
_ABSENT: Final = object()


class RocksDBMapState(InternalMapState):
    """A map in RocksDB; `size` is O(user keys)."""

    __slots__ = ("decode", "entry", "pairs", "table", "user_keys", "user_values")

    table: RocksDBStateTable
    entry: CurrentEntry
    pairs: PairAccess
    user_keys: ScalarEncoder
    user_values: ScalarEncoder
    decode: Callable[[bytes], Any]

    def __init__(self, table: RocksDBStateTable, namespace: Hashable) -> None:
        assert table.user_key_codec is not None
        self.table = table
        self.entry = table.entry(namespace)
        self.pairs = table.tables.store.pairs
        self.user_keys = encoder_of(table.user_key_codec)
        self.user_values = table.encode_present
        self.decode = table.decode_present

    def with_namespace(self, namespace: Hashable) -> RocksDBMapState:
        """The same state, bound to another namespace."""
        return RocksDBMapState(self.table, namespace)

    def get(self, user_key: Any) -> Any:
        """Return the user value, or None. The caller owns it."""
        data = self.pairs.get(self.entry.current() + self.user_keys.encode(user_key))
        return self.decode(data) if data else None  # None itself is no bytes

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        prefix: bytes = self.entry.current()
        raw: bytes = prefix + self.user_keys.encode(user_key)
        try:
            data = b"" if user_value is None else self.user_values.encode(user_value)
        except (StateTypeError, CodecError) as error:
            raise self.table.refusal(error) from None
        if self.table.walking:
            self.table.disturbances += 1
            if self.pairs.get(raw) is None:
                self.table.restructured(prefix)
        self.pairs.put(raw, data)

    def remove(self, user_key: Any) -> bool:
        """Remove a user key; returns whether it existed."""
        prefix: bytes = self.entry.current()
        raw: bytes = prefix + self.user_keys.encode(user_key)
        if self.pairs.get(raw) is None:
            return False
        if self.table.walking:
            self.table.restructured(prefix)
        self.pairs.delete(raw)
        return True

    def contains(self, user_key: Any) -> bool:
        """Whether the user key exists."""
        return self.pairs.get(self.entry.current() + self.user_keys.encode(user_key)) is not None

    def size(self) -> int:
        """The number of user keys; O(user keys)."""
        return sum([1 for _ in self.table.tables.store.scan(self.entry.current())])

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over (user key, user value) in the order of the user keys' bytes, or None if there is no map."""
        walk = _walk(self.table, self.entry.current())
        return walk if next(walk) is _BEGUN else None

    def keys(self) -> Iterator[Any] | None:
        """Iterate over the user keys in the order of their bytes, or None if there is no map."""
        items = self.items()
        return None if items is None else (user_key for user_key, _ in items)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        prefix: bytes = self.entry.current()
        for raw, _ in self.table.tables.store.scan(prefix):
            if self.table.walking:
                self.table.restructured(prefix)
            self.pairs.delete(raw)


def _walk(table: Any, prefix: bytes) -> Iterator[Any]:
    """Iterate over the pairs of one entry: `_BEGUN`, or `_ABSENT` if there are none, then (user key, user value).

    The caller takes the first at once; from then on, changes to the map are noticed.
    """
    store = table.tables.store
    pairs: PairAccess = store.pairs
    context: KeyContext = table.tables.context
    of_key = context.key
    cursor = store.cursor(prefix)
    next_key, next_value, advance = cursor.key, cursor.value, cursor.advance
    raw = next_key()
    if raw is None:
        cursor.check()
        yield _ABSENT
        return
    decode_user_key, decode = table.user_key_codec.decode, table.decode_present
    start: cython.Py_ssize_t = len(prefix)
    generation: cython.Py_ssize_t = pairs.generation
    structure = table.structure
    began_with, disturbances, stale = structure.get(prefix, 0), table.disturbances, False
    table.walking += 1
    try:
        yield _BEGUN
        while True:
            context.check_still(of_key)
            if pairs.generation != generation or table.disturbances != disturbances:
                if pairs.generation != generation or structure.get(prefix, 0) != began_with:
                    raise RuntimeError(
                        f"map state {table.name!r} gained or lost user keys during iteration: "
                        f"collect them with list() first"
                    )
                stale = True  # values were written: the cursor's may be old
            if raw is None:
                cursor.check()
                return
            data = pairs.get(raw) if stale else next_value()
            user_key = decode_user_key(raw[start:])
            advance()
            raw = next_key()
            yield user_key, decode(data) if data else None
    finally:
        table.walking -= 1
        if not table.walking:
            structure.clear()
