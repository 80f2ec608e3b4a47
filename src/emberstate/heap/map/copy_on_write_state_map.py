# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""`CopyOnWriteStateMap`: a hash map that rehashes incrementally and can be read as of a snapshot.

It has the operations of a state map, over the tables and chains of `buckets`. While the map grows, every keyed
operation first moves a few buckets (`do_chores`); iteration and the visitor do not.

Thread safety: one owner thread. A snapshot's readers read tables and images, never other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.before_images import MapImage
from emberstate.heap.map.buckets import CopyOnWriteBuckets
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.interface import StateMapStatistics
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshots import SnapshotPoint
from emberstate.heap.map.value_kind import ValueKind
from emberstate.heap.map.visitor import DEFAULT_MAX_BUCKETS, IncrementalVisitor, check_max_buckets
from emberstate.state.changes import ABSENT, EntryChange
from emberstate.state.points import point_of

if not cython.compiled:  # compiled, these are C constants and functions
    from emberstate.heap.map.buckets import head_of
    from emberstate.heap.map.geometry import ABSENT_PAIR, SHARED_ENTRY


class CopyOnWriteStateMap(CopyOnWriteBuckets):
    """The state map of one key group, with incremental rehash and copy-on-write snapshots.

    >>> from emberstate.heap.map.value_kind import IMMUTABLE
    >>> states = CopyOnWriteStateMap(IMMUTABLE)
    >>> states.put("ann", "window-1", 3)
    >>> with states.snapshot() as before:
    ...     states.put("ann", "window-1", 4)
    ...     before.get("ann", "window-1"), states.get("ann", "window-1"), states.changes(before)
    (3, 4, [('ann', 'window-1', ((<Op.REPLACED: 1>, 4),))])
    """

    __slots__ = ()

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller may mutate it, which counts as a change."""
        if self.chores:
            self.do_chores()
        hash: cython.uint = self.hash_of(key, namespace)
        if self.kind.immutable:
            return self.find_state(hash, key, namespace)
        entry = self.find(hash, key, namespace)
        if entry is None:
            return None
        if entry.state_version == self.registry.version:
            return entry.state
        return self.lend(entry)

    def peek(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller must neither mutate nor keep it."""
        if self.chores:
            self.do_chores()
        return self.find_state(self.hash_of(key, namespace), key, namespace)

    def contains_key(self, key: Hashable, namespace: Hashable) -> bool:
        """Return whether there is an entry; its state may be None."""
        if self.chores:
            self.do_chores()
        return self.find(self.hash_of(key, namespace), key, namespace) is not None

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        if self.chores:
            self.do_chores()
        hash: cython.uint = self.hash_of(key, namespace)
        outcome: cython.int = self.overwrite(hash, key, namespace, state)
        if outcome == ABSENT_PAIR:
            self.insert(hash, key, namespace, state)
        elif outcome == SHARED_ENTRY:
            entry = self.find(hash, key, namespace)
            if entry is None:  # the key's `==` changed its answer since a moment ago
                self.insert(hash, key, namespace, state)
            else:
                self.write(entry, state)

    def put_and_get_old(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the previous one, or None."""
        if self.chores:
            self.do_chores()
        hash: cython.uint = self.hash_of(key, namespace)
        entry = self.find(hash, key, namespace)
        if entry is None:
            self.insert(hash, key, namespace, state)
            return None
        old = self._detached(entry)
        self.write(entry, state)
        return old

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove the entry; returns whether there was one."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        if entry is None:
            return False
        self.unlink(entry)
        return True

    def remove_and_get_old(self, key: Hashable, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        if entry is None:
            return None
        old = self._detached(entry)
        self.unlink(entry)
        return old

    def transform(
        self, key: Hashable, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]
    ) -> Any:
        """Set the state to `function(state or None, argument)` and return it.

        If the function raises, nothing has changed.
        """
        old = self.peek(key, namespace)
        # A copy even if no snapshot shares the state: the function may mutate it and then raise.
        new = function(old if old is None or self.kind.immutable else self.kind.copy(old), argument)
        self.put(key, namespace, new)
        return new

    # -- iteration -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, state); states are views.

        The caller may read and overwrite meanwhile; adding or removing a pair raises. The iteration goes by cells:
        the buckets of the table as it was at the start, wherever rehashing has moved their entries since. So growth
        neither hides nor repeats an entry.
        """
        started = self.modifications
        cells = self.primary.capacity
        kind: ValueKind = self.kind
        for number in range(cells):
            entries = self.cell(number, cells)
            for position in range(len(entries)):
                entry: StateMapEntry = entries[position]
                if position:  # a write may have replaced it by a copy meanwhile
                    entry = self.find(entry.hash, entry.key, entry.namespace) or entry
                yield entry.key, entry.namespace, kind.view(entry.state, None)
                if self.modifications != started:
                    self.refuse_iteration()

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`; O(all entries)."""
        started = self.modifications
        cells = self.primary.capacity
        for number in range(cells):
            for entry in self.cell(number, cells):
                if entry.namespace == namespace:
                    yield entry.key
                    if self.modifications != started:
                        self.refuse_iteration()

    def visitor(self, max_buckets: int = DEFAULT_MAX_BUCKETS) -> IncrementalVisitor:
        """Return a visitor, which walks the map while it is used, `max_buckets` cells per call."""
        return IncrementalVisitor(self, self._parts(self.primary.capacity, check_max_buckets(max_buckets)))

    def _parts(self, cells: int, max_buckets: int) -> Iterator[list[tuple[Any, Any, Any]]]:
        for first in range(0, cells, max_buckets):
            yield self.cells_from(first, min(cells, first + max_buckets), cells)

    def cells_from(
        self, first: cython.Py_ssize_t, last: cython.Py_ssize_t, cells: cython.Py_ssize_t
    ) -> list[tuple[Any, Any, Any]]:
        """Return (key, namespace, state) of the entries in cells [first, last)."""
        found: list[tuple[Any, Any, Any]] = []
        number: cython.Py_ssize_t = first
        while number < last:
            entries: list[StateMapEntry] = self.cell(number, cells)
            position: cython.Py_ssize_t
            for position in range(len(entries)):
                entry: StateMapEntry = entries[position]
                found.append((entry.key, entry.namespace, entry.state))
            number += 1
        return found

    def cell(self, number: cython.Py_ssize_t, cells: cython.Py_ssize_t) -> list[StateMapEntry]:
        """Return the entries whose hash modulo `cells` (a power of two) is `number`, whichever bucket they are in."""
        entries: list[StateMapEntry] = []
        capacity: cython.Py_ssize_t = self.primary.capacity
        mask: cython.Py_ssize_t = cells - 1
        bucket: cython.Py_ssize_t = number & (capacity - 1)  # a roll-back may have made the table smaller
        while bucket < capacity:
            moved: cython.bint = bucket < self.rehash_index
            table: PageTable = cython.cast(PageTable, self.rehash) if moved else self.primary
            entry: StateMapEntry | None = head_of(table, bucket)
            while True:
                while entry is not None:
                    if entry.hash & mask == number:
                        entries.append(entry)
                    entry = entry.next
                if not moved:
                    break
                moved = False
                entry = head_of(table, bucket + capacity)
            bucket += cells
        return entries

    # -- points in time --------------------------------------------------------------------------------------

    @property
    def is_rehashing(self) -> bool:
        """Whether the map is growing."""
        return self.rehash is not None

    def snapshot(self) -> Any:
        """Take a snapshot (of all maps of the registry) and open it on this map; a context manager."""
        return self.open(self.registry.snapshot())

    def open(self, snapshot: Any) -> Any:
        """Read this map as a live snapshot of its registry saw it: `get`, `in`, `len`, iteration."""
        from emberstate.heap.map.snapshot_reader import CopyOnWriteStateMapSnapshot

        point: SnapshotPoint = point_of(snapshot, SnapshotPoint)
        self.registry.check_live(point)
        return CopyOnWriteStateMapSnapshot(self, point)

    def changes(self, snapshot: Any) -> list[EntryChange]:
        """List the entries that differ from `snapshot`, a record each; costs as much as was touched."""
        point: SnapshotPoint = point_of(snapshot, SnapshotPoint)
        self.registry.check_live(point)
        self.registry.seal()
        return self.registry.undisturbed(self._changes, point)  # type: ignore[no-any-return]

    def _changes(self, point: SnapshotPoint) -> list[EntryChange]:
        images: list[MapImage] = self.images_since(point.version)
        kind: ValueKind = self.kind
        seen: set[tuple[Any, Any]] | None = set() if len(images) > 1 else None
        result: list[EntryChange] = []
        for image in images:
            if image.repeats and seen is None:
                seen = set()
            log: list[Any] = image.log
            position: cython.Py_ssize_t
            for position in range(0, len(log), 2):
                entry: StateMapEntry = log[position]
                # One image, and nothing removed or sealed since: the log has each live entry once.
                live: StateMapEntry | None = entry
                if seen is not None:
                    pair = (entry.key, entry.namespace)
                    if pair in seen:
                        continue
                    seen.add(pair)
                    live = self.find(entry.hash, entry.key, entry.namespace)
                old = log[position + 1]
                new = ABSENT if live is None else live.state
                if new is old and not kind.nested:
                    continue
                steps = kind.delta(old, new, point)
                if steps:
                    result.append((entry.key, entry.namespace, steps))
        return result

    def put_back(self, snapshot: SnapshotPoint) -> None:
        """Roll this map back; only `SnapshotRegistry.roll_back` calls it, under its lock."""
        from emberstate.heap.map.roll_back import roll_back_map

        roll_back_map(self, snapshot)

    def statistics(self) -> StateMapStatistics:
        """Return sizes and counters."""
        return StateMapStatistics(
            entries=self.size,
            capacity=(self.primary if self.rehash is None else self.rehash).capacity,
            is_rehashing=self.rehash is not None,
            rehash_index=self.rehash_index,
            version=self.registry.version,
            live_snapshots=self.registry.live_snapshots(),
            before_images=sum(image.image_count() for image in self.images_since(0)),
            entry_copies=self.entry_copies,
            state_copies=self.state_copies,
            rehash_steps=self.rehash_steps,
            growths=self.growths,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure is broken. O(all entries)."""
        from emberstate.heap.map.invariants import check_map

        check_map(self)

    def draw(self) -> str:
        """Return the map as text: tables, rehash index, chains with versions, live snapshots and what they keep.

        For a small map: one of more than 64 buckets raises ValueError. `drawing` says how to read the picture.

        >>> from emberstate.heap.map.value_kind import IMMUTABLE
        >>> states = CopyOnWriteStateMap(IMMUTABLE, capacity=4)
        >>> for key in (1, 2, 3):
        ...     states.put(key, "", key * 10)
        >>> before = states.snapshot()
        >>> states.put(1, "", 11)
        >>> print(states.draw())
        entries 3, version 2, required 2, live snapshots [2]
        primary table, 4 buckets, threshold 3
           0 | -
           1 | -
           2 | 2 ''=20 v1/1
           3 | 3 ''=30 v2/1 -> 1 ''=11 v2/2
        snapshot 2: entries 3, heads kept 1
           3 | 3 ''=30 v1/1 -> 1 ''=10 v1/1 (primary)
        """
        from emberstate.heap.map.drawing import draw_map

        return draw_map(self)
