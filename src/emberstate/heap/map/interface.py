"""The mapping (key, namespace) → state of one key group: the interface of the two state maps.

`CopyOnWriteStateMap` is the one to use. `NestedStateMap` does the same with plain nested dicts and a full
copy per snapshot; it is the simple thing that the other is measured against and tested with.

Keys and namespaces are told apart by Python's `==`; that 1, 1.0 and True are never one key is ensured by the
declared key type, where keys come in. They must be hashable and immutable; neither may be None. States may be
None.

Thread safety: one owner thread uses the map. Snapshots may be read and released by any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from emberstate.heap.map.snapshots import Snapshot, SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.changes import EntryChange
from emberstate.state.points import point_of


@dataclasses.dataclass(frozen=True, slots=True)
class StateMapStatistics:
    """What a state map is doing; all counts since it was made."""

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
    """What `in` is asked about: a key and a namespace."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(f"`in` a state map asks for a pair (key, namespace), found {pair!r:.100}")
    return pair


class StateMap:
    """(key, namespace) → state, with snapshots, roll-back and a list of what changed.

    Reading and writing: `get`, `peek`, `contains_key`, `put`, `put_and_get_old`, `remove`,
    `remove_and_get_old`, `transform`, `in`, `len`, iteration, `keys`, `visitor`. Points in time: `snapshot`,
    `open`, `changes`, `roll_back`, `is_rehashing`. Looking after it: `statistics`, `check_invariants`, `draw`.
    """

    __slots__ = ("kind", "registry")

    registry: SnapshotRegistry
    kind: ValueKind

    def __init__(self, kind: ValueKind, registry: SnapshotRegistry) -> None:
        self.registry = registry
        self.kind = kind

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller may change what is returned, and that change counts."""
        raise NotImplementedError

    def peek(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None, to look at only: the caller must not change it nor keep it."""
        raise NotImplementedError

    def contains_key(self, key: Hashable, namespace: Hashable) -> bool:
        """Whether there is an entry, be its state None or not."""
        raise NotImplementedError

    def put(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        raise NotImplementedError

    def put_and_get_old(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the one before, or None."""
        raise NotImplementedError

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove the entry; whether there was one."""
        raise NotImplementedError

    def remove_and_get_old(self, key: Hashable, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        raise NotImplementedError

    def transform(
        self, key: Hashable, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]
    ) -> Any:
        """Set the state to `function(state or None, argument)` and return it.

        If that raises, nothing has changed.
        """
        raise NotImplementedError

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`; O(all entries)."""
        raise NotImplementedError

    def visitor(self, max_buckets: int = 64) -> Any:
        """Walk the map a little at a time while it is used: an `IncrementalVisitor`."""
        raise NotImplementedError

    def refuse_iteration(self) -> None:
        """Raise what an iteration raises when it finds that the map has gained or lost a pair."""
        raise RuntimeError(
            "the state map was added to, removed from or rolled back during iteration: "
            "collect what to change first, or use visitor()"
        )

    def snapshot(self) -> Any:
        """Take a snapshot (of all maps of the registry) and open it on this map; a context manager."""
        raise NotImplementedError

    def open(self, snapshot: Any) -> Any:
        """Read this map as a live snapshot of its registry saw it: `get`, `in`, `len`, iteration."""
        raise NotImplementedError

    def changes(self, snapshot: Any) -> list[EntryChange]:
        """List what differs from `snapshot`, one record per entry, at the cost of what was touched."""
        raise NotImplementedError

    def roll_back(self, snapshot: Any) -> None:
        """Put this map, and with it all maps of its registry, back to what `snapshot` saw."""
        self.registry.roll_back(point_of(snapshot, Snapshot))

    def put_back(self, snapshot: Snapshot) -> None:
        """This map's part of a roll-back: for `SnapshotRegistry.roll_back` only, which does what belongs around it."""
        raise NotImplementedError

    def statistics(self) -> StateMapStatistics:
        """What the map is doing."""
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
