# cython: boundscheck=False, wraparound=False
"""Value, list and folding state in RocksDB: internal states over a `RocksDBStateTable`.

A read decodes a value for the caller: changing it changes nothing until it is written back. A write encodes its value
at once. That is the difference from the heap, where changes to values read or handed in count.

User functions run before anything is changed, on values decoded for them: a function that raises has no effect.
Map state: `map_state`.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from emberstate.errors import CodecError, StateTypeError
from emberstate.rocksdb.current_entry import CurrentEntry
from emberstate.rocksdb.pair_access import PairAccess
from emberstate.state.internal_states import Folding, InternalListState, InternalValueState, StoredFoldingState

if TYPE_CHECKING:
    from emberstate.rocksdb.state_table import RocksDBStateTable


class RocksDBValueState(InternalValueState):
    """A value in RocksDB: one pair."""

    __slots__ = ("decode", "encode", "entry", "pairs", "table")

    table: RocksDBStateTable
    entry: CurrentEntry
    pairs: PairAccess
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def __init__(self, table: RocksDBStateTable, namespace: Hashable) -> None:
        self.table = table
        self.entry = table.entry(namespace)
        self.pairs = table.tables.store.pairs
        self.encode = table.encode
        self.decode = table.decode

    def with_namespace(self, namespace: Hashable) -> RocksDBValueState:
        """The same state, bound to another namespace."""
        return RocksDBValueState(self.table, namespace)

    def value(self) -> Any:
        """Return the value, or None. The caller owns it."""
        data = self.pairs.get(self.entry.current())
        return None if data is None else self.decode(data)

    def update(self, value: Any) -> None:
        """Set the value."""
        raw: bytes = self.entry.current()
        try:
            data = self.encode(value)
        except (StateTypeError, CodecError) as error:
            raise self.table.refusal(error) from None
        self.pairs.put(raw, data)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.pairs.delete(self.entry.current())


class RocksDBListState(InternalListState):
    """A list in RocksDB: a pair per element, in the order of a sequence that only grows.

    So appending reads nothing. `size` is O(elements).
    """

    __slots__ = ("encode", "entry", "pairs", "table")

    table: RocksDBStateTable
    entry: CurrentEntry
    pairs: PairAccess
    encode: Callable[[Any], bytes]

    def __init__(self, table: RocksDBStateTable, namespace: Hashable) -> None:
        self.table = table
        self.entry = table.entry(namespace)
        self.pairs = table.tables.store.pairs
        self.encode = table.encode

    def with_namespace(self, namespace: Hashable) -> RocksDBListState:
        """The same state, bound to another namespace."""
        return RocksDBListState(self.table, namespace)

    def get(self) -> list[Any] | None:
        """Return the elements as a new list, or None."""
        decode = self.table.decode
        elements = [decode(data) for _, data in self.table.tables.store.scan(self.entry.current())]
        return elements if elements else None

    def peek(self) -> list[Any] | None:
        """Return the elements as a new list, or None."""
        return self.get()

    def add(self, element: Any) -> None:
        """Append an element."""
        prefix: bytes = self.entry.current()
        try:
            data = self.encode(element)
        except (StateTypeError, CodecError) as error:
            raise self.table.refusal(error) from None
        self.pairs.append(prefix, data)

    def add_all(self, elements: list[Any]) -> None:
        """Append elements."""
        self._append(self.entry.current(), [self.table.encoded(element) for element in elements])

    def update(self, elements: list[Any]) -> None:
        """Replace the list."""
        prefix = self.entry.current()
        encoded = [self.table.encoded(element) for element in elements]
        self._delete(prefix)
        self._append(prefix, encoded)

    def size(self) -> int:
        """The number of elements; O(elements)."""
        return sum([1 for _ in self.table.tables.store.scan(self.entry.current())])

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self._delete(self.entry.current())

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Append the current key's elements in `sources`, in order, to those in `target`, and clear `sources`."""
        if not sources:
            return
        encoded: list[bytes] = []
        prefixes = [self.table.entry(source).current() for source in dict.fromkeys(sources)]
        for prefix in prefixes:
            encoded += [data for _, data in self.table.tables.store.scan(prefix)]
        for prefix in prefixes:
            self._delete(prefix)
        self._append(self.table.entry(target).current(), encoded)

    def _append(self, prefix: bytes, encoded: list[bytes]) -> None:
        for data in encoded:
            self.pairs.append(prefix, data)

    def _delete(self, prefix: bytes) -> None:
        for raw, _ in self.table.tables.store.scan(prefix):
            self.pairs.delete(raw)


class RocksDBFoldingState(StoredFoldingState):
    """An accumulator in RocksDB: one pair."""

    __slots__ = ("stored", "table")

    table: RocksDBStateTable
    stored: RocksDBValueState

    def __init__(self, table: RocksDBStateTable, namespace: Hashable, folding: Folding) -> None:
        self.table = table
        self.folding = folding
        self.stored = RocksDBValueState(table, namespace)

    def with_namespace(self, namespace: Hashable) -> RocksDBFoldingState:
        """Return the same state, bound to another namespace."""
        return RocksDBFoldingState(self.table, namespace, self.folding)

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        accumulator = self.stored.value()
        if accumulator is None or self.folding.result is None:
            return accumulator
        return self.folding.result(accumulator)

    def add(self, value: Any) -> None:
        """Fold a value in."""
        self.stored.update(self.folding.fold(self.stored.value(), value))

    def get_internal(self) -> Any:
        """Return the accumulator, or None."""
        return self.stored.value()

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        if accumulator is None:
            self.stored.clear()
        else:
            self.stored.update(accumulator)

    def operand(self) -> Any:
        """Return the accumulator, decoded for the caller, or None."""
        return self.stored.value()

    def check_stored(self, accumulator: Any) -> None:
        """Raise if the accumulator cannot be encoded."""
        self.table.encoded(accumulator)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self.stored.clear()
