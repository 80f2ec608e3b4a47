"""`NestedStateMap`: namespace → key → state in plain dicts, copied as a whole for a snapshot.

It serves states that stay small, where a namespace is cheap to count and list, and is the reference that
`CopyOnWriteStateMap` is tested against: the two differ in cost only. A snapshot copies every state at once, on the
owner's thread; a roll-back copies them again; `changes` compares everything.

Loans. A mutable state is handed out as a copy. The original is kept until the copy is sealed (see `snapshots`): put
back if the copy is unchanged, else replaced by a copy of what the holder made of it.

Invariants
1.  A namespace exists only while it has a key.
2.  `size` is the number of pairs.
3.  Nobody outside can reach what `loans` and the frozen copies of a snapshot hold.

Thread safety: one owner thread. The frozen copies never change, so any thread may read them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from types import TracebackType
from typing import Any

from emberstate.errors import InvariantError, StateTypeError
from emberstate.heap.map.interface import StateMap, StateMapStatistics, as_pair
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.heap.map.visitor import DEFAULT_MAX_BUCKETS, IncrementalVisitor, check_max_buckets
from emberstate.state.changes import ABSENT, EntryChange
from emberstate.state.points import point_of

_Nested = dict[Any, dict[Any, Any]]


class NestedStateMap(StateMap):
    """The state map of one key group as nested dicts, with synchronous full snapshots.

    >>> from emberstate.heap.map.value_kind import IMMUTABLE
    >>> states = NestedStateMap(IMMUTABLE)
    >>> states.put("ann", "window-1", 3)
    >>> with states.snapshot() as before:
    ...     states.put("ann", "window-1", 4)
    ...     before.get("ann", "window-1"), states.get("ann", "window-1"), states.changes(before)
    (3, 4, [('ann', 'window-1', ((<Op.REPLACED: 1>, 4),))])
    """

    __slots__ = ("loans", "modifications", "namespaces", "size", "state_copies")

    registry: SnapshotRegistry
    kind: ValueKind

    def __init__(self, kind: ValueKind, registry: SnapshotRegistry | None = None) -> None:
        """Make an empty map for states of `kind`, among the maps of `registry` (default: alone)."""
        super().__init__(kind, SnapshotRegistry() if registry is None else registry)
        self.namespaces: _Nested = {}
        self.size = 0
        self.modifications = 0  # grows when a pair is added or removed, or the map rolled back
        self.loans: dict[tuple[Any, Any], Any] = {}  # (key, namespace) → original of a lent state
        self.state_copies = 0
        self.registry.synchronous.append(self)

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller may mutate it, which counts as a change."""
        state = self._find(key, namespace)
        if state is ABSENT:
            return None
        if self.kind.lends and (key, namespace) not in self.loans:
            self.check_changeable()
            lent = self._copy(state)
            self._note(key, namespace, state)
            self.namespaces[namespace][key] = lent
            return lent
        return state

    def peek(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. The caller must neither mutate nor keep it."""
        state = self._find(key, namespace)
        return None if state is ABSENT else state

    def contains_key(self, key: Hashable, namespace: Hashable) -> bool:
        """Return whether there is an entry; its state may be None."""
        return self._find(key, namespace) is not ABSENT

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        self._put(key, namespace, state, self._find(key, namespace))

    def put_and_get_old(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the previous one, or None."""
        old = self._find(key, namespace)
        detached = self._detached(key, namespace, old)
        self._put(key, namespace, state, old)
        return detached

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove the entry; returns whether there was one."""
        self.check_changeable()
        if self._find(key, namespace) is ABSENT:
            return False
        keys = self.namespaces[namespace]
        del keys[key]
        if not keys:
            del self.namespaces[namespace]
        self.loans.pop((key, namespace), None)
        self.size -= 1
        self.modifications += 1
        return True

    def remove_and_get_old(self, key: Hashable, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        old = self._detached(key, namespace, self._find(key, namespace))
        self.remove(key, namespace)
        return old

    def transform(self, key: Hashable, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Set the state to `function(state or None, argument)` and return it.

        If the function raises, nothing has changed.
        """
        old = self.peek(key, namespace)
        new = function(old if old is None or self.kind.immutable else self._copy(old), argument)
        self.put(key, namespace, new)
        return new

    # -- iteration -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, state); states are views.

        Reading meanwhile is fine, adding or removing raises.
        """
        started = self.modifications
        for namespace, keys in list(self.namespaces.items()):
            for key in list(keys):
                yield key, namespace, self.kind.view(keys[key], None)
                if self.modifications != started:
                    self.refuse_iteration()

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`."""
        started = self.modifications
        for key in list(self.namespaces.get(namespace, ())):
            yield key
            if self.modifications != started:
                self.refuse_iteration()

    def visitor(self, max_buckets: int = DEFAULT_MAX_BUCKETS) -> IncrementalVisitor:
        """Walk the map a little at a time while it is used; `max_buckets` entries are looked at per call.

        The list of a namespace's keys is made when the walk gets there.
        """
        return IncrementalVisitor(self, self._parts(list(self.namespaces), check_max_buckets(max_buckets)))

    def _parts(self, namespaces: list[Any], size: int) -> Iterator[list[tuple[Any, Any, Any]]]:
        for namespace in namespaces:
            keys = list(self.namespaces.get(namespace, ()))
            for start in range(0, len(keys), size):
                found = [(key, namespace, self._find(key, namespace)) for key in keys[start : start + size]]
                yield [entry for entry in found if entry[2] is not ABSENT]

    # -- points in time --------------------------------------------------------------------------------------

    @property
    def is_rehashing(self) -> bool:
        """Always False: a dict grows at once."""
        return False

    def snapshot(self) -> NestedStateMapSnapshot:
        """Take a snapshot (of all maps of the registry) and open it on this map; a context manager."""
        return self.open(self.registry.snapshot())

    def open(self, snapshot: Any) -> NestedStateMapSnapshot:
        """Read this map as a live snapshot of its registry saw it: `get`, `in`, `len`, iteration."""
        point = point_of(snapshot, SnapshotPoint)
        self.registry.check_live(point)
        return NestedStateMapSnapshot(self, point)

    def freeze(self, snapshot: SnapshotPoint) -> None:
        """Copy all states for `snapshot`, which is being taken; everything is sealed."""
        snapshot.frozen[self] = self._copied(self.namespaces)

    def changes(self, snapshot: Any) -> list[EntryChange]:
        """List the entries that differ from `snapshot`, a record each. O(all entries)."""
        point = point_of(snapshot, SnapshotPoint)
        self.registry.check_live(point)
        self.registry.seal()
        frozen = self.frozen_by(point)
        delta = self.kind.delta
        result: list[EntryChange] = []
        for namespace, keys in self.namespaces.items():
            before = frozen.get(namespace, {})
            for key, state in keys.items():
                if steps := delta(before.get(key, ABSENT), state, point):
                    result.append((key, namespace, steps))
        for namespace, keys in frozen.items():
            now = self.namespaces.get(namespace, {})
            for key, state in keys.items():
                if key not in now and (steps := delta(state, ABSENT, point)):
                    result.append((key, namespace, steps))
        return result

    def put_back(self, snapshot: SnapshotPoint) -> None:
        """Roll this map back; only `SnapshotRegistry.roll_back` calls it, under its lock."""
        self.namespaces = self._copied(self.frozen_by(snapshot))
        self.size = sum(map(len, self.namespaces.values()))
        self.modifications += 1

    def frozen_by(self, snapshot: SnapshotPoint) -> _Nested:
        """Return what `snapshot` keeps of this map: nothing, if the map was made after it."""
        frozen: _Nested = snapshot.frozen.get(self, {})
        return frozen

    def seal_loans(self) -> None:
        """Seal every lent state; see `snapshots`."""
        for (key, namespace), old in self.loans.items():
            keys = self.namespaces[namespace]
            keys[key] = self.kind.seal(keys[key], old)
        self.loans.clear()

    def forget_loans(self) -> None:
        """Forget all loans: a roll-back follows."""
        self.loans.clear()

    # -- inspection ------------------------------------------------------------------------------------------

    def statistics(self) -> StateMapStatistics:
        """Return sizes and counters."""
        return StateMapStatistics(
            entries=self.size,
            capacity=self.size,
            is_rehashing=False,
            rehash_index=0,
            version=self.registry.version,
            live_snapshots=self.registry.live_snapshots(),
            before_images=0,
            entry_copies=0,
            state_copies=self.state_copies,
            rehash_steps=0,
            growths=0,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure is broken. O(all entries)."""
        if empty := [namespace for namespace, keys in self.namespaces.items() if not keys]:
            raise InvariantError(f"namespaces {empty!r} have no keys and are there; {self.statistics()}")
        if (found := sum(map(len, self.namespaces.values()))) != self.size:
            raise InvariantError(f"{found} entries found, size is {self.size}; {self.statistics()}")
        for key, namespace in self.loans:
            if self._find(key, namespace) is ABSENT:
                raise InvariantError(f"({key!r}, {namespace!r}) is lent and not there; {self.statistics()}")
        if self.loans and not any(lender is self for lender in self.registry.lenders):
            raise InvariantError(f"there are loans that nobody will seal; {self.statistics()}")
        self.registry.check_invariants()

    def draw(self) -> str:
        """Return the map as text, a line per namespace; one of more than 64 entries raises ValueError."""
        from emberstate.heap.map.drawing import draw_nested_map

        return draw_nested_map(self)

    # -- inside ----------------------------------------------------------------------------------------------

    def _find(self, key: Hashable, namespace: Hashable) -> Any:
        if key is None or namespace is None:
            what = f"neither key nor namespace may be None, got key {key!r}, namespace {namespace!r}"
            raise StateTypeError(what, option="key" if key is None else "namespace")
        return self.registry.undisturbed(self._look_up, key, namespace)

    def _look_up(self, key: Hashable, namespace: Hashable) -> Any:
        hash(key)  # an unhashable key is rejected even if the namespace is missing
        keys = self.namespaces.get(namespace)
        return ABSENT if keys is None else keys.get(key, ABSENT)

    def check_changeable(self) -> None:
        """Reject a change that a key's own code makes in the middle of a look-up."""
        if self.registry.busy:
            self.registry.refuse_change()

    def _put(self, key: Hashable, namespace: Hashable, state: Any, old: Any) -> None:
        self.check_changeable()
        if self.kind.lends and (key, namespace) not in self.loans:
            self._note(key, namespace, old)
        self.namespaces.setdefault(namespace, {})[key] = state
        if old is ABSENT:
            self.size += 1
            self.modifications += 1

    def _note(self, key: Hashable, namespace: Hashable, old: Any) -> None:
        if not any(lender is self for lender in self.registry.lenders):
            self.registry.lenders.append(self)
        self.loans[key, namespace] = old

    def _detached(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Return the state of an entry that is about to leave the map; the caller owns it."""
        if state is ABSENT:
            return None
        if not self.kind.lends or (key, namespace) in self.loans:
            return state
        return self._copy(state)  # the map keeps the original, to compare it with the new state

    def _copy(self, state: Any) -> Any:
        self.state_copies += 1
        return self.kind.copy(state)

    def _copied(self, namespaces: _Nested) -> _Nested:
        copy = self.kind.copy
        return {namespace: {key: copy(state) for key, state in keys.items()} for namespace, keys in namespaces.items()}


class NestedStateMapSnapshot:
    """A map at a point in time: `get`, `in`, `len`, iteration over (key, namespace, state). A context
    manager.

    >>> from emberstate.heap.map.value_kind import IMMUTABLE
    >>> states = NestedStateMap(IMMUTABLE)
    >>> states.put("a", "ns", 1)
    >>> with states.snapshot() as before:
    ...     states.remove("a", "ns")
    ...     list(before), len(before), ("a", "ns") in before
    True
    ([('a', 'ns', 1)], 1, True)
    """

    __slots__ = ("_map", "point")

    def __init__(self, map: NestedStateMap, point: SnapshotPoint) -> None:
        self._map = map
        #: The snapshot of the whole registry.
        self.point = point

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return a view of the state as it was, or None."""
        state = self._content().get(namespace, {}).get(key, ABSENT)
        return None if state is ABSENT else self._map.kind.view(state, self.point)

    def __contains__(self, pair: object) -> bool:
        key, namespace = as_pair(pair)
        return key in self._content().get(namespace, {})

    def __len__(self) -> int:
        return sum(map(len, self._content().values()))

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        view = self._map.kind.view
        for namespace, keys in self._content().items():
            self.point.check_live()
            for key, state in keys.items():
                yield key, namespace, view(state, self.point)

    def release(self) -> None:
        """Release the snapshot, from any thread."""
        self.point.release()

    def __enter__(self) -> NestedStateMapSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _content(self) -> _Nested:
        with self.point.registry.lock:  # against a release on another thread, which drops the copies
            self.point.check_live()
            return self._map.frozen_by(self.point)
