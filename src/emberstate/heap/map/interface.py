"""The mapping (key, namespace) → state of one key group: the interface of the two state maps.

Use `CopyOnWriteStateMap`. `NestedStateMap` does the same with nested dicts and a full copy per snapshot: it is the
reference that the other is tested and measured against.

Keys and namespaces are compared by Python's `==`. They must be hashable and immutable; neither may be None. The
declared key type, checked where keys come in, keeps 1, 1.0 and True apart. States may be None.

Thread safety: one owner thread uses the map. Snapshots may be read and released by any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.changes import EntryChange
from emberstate.state.points import point_of


@dataclasses.dataclass(frozen=True, slots=True)
class StateMapStatistics:
    """Sizes of a state map, and counters since it was made."""

    entries: int
    capacity: int
    is_rehashing: bool
    rehash_index: int
    version: int
    live_snapshots: int
    before_images: int
    entry_copies: int
    state_copies: int
    rehash_steps: int
    growths: int


def as_pair(pair: Any) -> tuple[Any, Any]:
    """Return the operand of `in` as a (key, namespace) pair."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"`in` a state map failed: expected a pair (key, namespace), got {pair!r:.100}")
    return pair


class StateMap:
    """(key, namespace) → state, with snapshots, roll-back and a list of what changed.

    Reading and writing: `get`, `peek`, `contains_key`, `put`, `put_and_get_old`, `remove`,
    `remove_and_get_old`, `transform`, `in`, `len`, iteration, `keys`, `visitor`. Points in time: `snapshot`,
    `open`, `changes`, `roll_back`, `is_rehashing`. Inspection: `statistics`, `check_invariants`, `draw`.
    """

    __slots__ = ("kind", "registry")

    registry: SnapshotRegistry
    kind: ValueKind

    def __init__(self, kind: ValueKind, registry: SnapshotRegistry) -> None:
        self.registry = registry
        self.kind = kind

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller may mutate it, which counts as a change."""
        raise NotImplementedError

    def peek(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller must neither mutate nor keep it."""
        raise NotImplementedError

    def contains_key(self, key: Hashable, namespace: Hashable) -> bool:
        """Return whether there is an entry; its state may be None."""
        raise NotImplementedError

    def put(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        raise NotImplementedError

    def put_and_get_old(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the previous one, or None."""
        raise NotImplementedError

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove the entry; returns whether there was one."""
        raise NotImplementedError

    def remove_and_get_old(self, key: Hashable, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        raise NotImplementedError

    def transform(
        self, key: Hashable, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]
    ) -> Any:
        """Set the state to `function(state or None, argument)` and return it.

        If the function raises, nothing has changed.
        """
        raise NotImplementedError

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`; O(all entries)."""
        raise NotImplementedError

    def visitor(self, max_buckets: int = 64) -> Any:
        """Return an `IncrementalVisitor`, which walks the map in parts while it is used."""
        raise NotImplementedError

    def refuse_iteration(self) -> None:
        """Raise the error of an iteration during which the map gained or lost a pair."""
        raise RuntimeError(
            "iteration failed: the state map gained or lost entries, or was rolled back, during iteration. "
            "Collect the keys first, or use visitor()."
        )

    def snapshot(self) -> Any:
        """Take a snapshot (of all maps of the registry) and open it on this map; a context manager."""
        raise NotImplementedError

    def open(self, snapshot: Any) -> Any:
        """Read this map as a live snapshot of its registry saw it: `get`, `in`, `len`, iteration."""
        raise NotImplementedError

    def changes(self, snapshot: Any) -> list[EntryChange]:
        """List the entries that differ from `snapshot`, a record each; costs as much as was touched."""
        raise NotImplementedError

    def roll_back(self, snapshot: Any) -> None:
        """Roll this map, and all maps of its registry, back to `snapshot`."""
        self.registry.roll_back(point_of(snapshot, SnapshotPoint))

    def put_back(self, snapshot: SnapshotPoint) -> None:
        """Roll this map back; only `SnapshotRegistry.roll_back` calls it, under its lock."""
        raise NotImplementedError

    def statistics(self) -> StateMapStatistics:
        """Return sizes and counters."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure is broken. O(all entries)."""
        raise NotImplementedError

    def draw(self) -> str:
        """Return a picture of a small map as text; raises ValueError if the map is too large to draw."""
        raise NotImplementedError

    def __contains__(self, pair: object) -> bool:
        return self.contains_key(*as_pair(pair))

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        raise NotImplementedError
