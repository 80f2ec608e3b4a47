# cython: boundscheck=False, wraparound=False
"""The content of a map state for one key: a flat tuple while it is small, else a `CopyOnWriteStateMap`.

Small: (user key, user value, user key, user value, …). A tuple is immutable, so snapshots share it and a put makes a
new one; 88 bytes for three user keys, where a dict takes more than twice that. Large: a state map with the user keys
as keys, in the same registry as the map that holds it. So snapshots, roll-back and the list of changes work per user
key, and touching one of a million copies one entry. (Flink copies the whole map.)

A map of mutable values is large from its first user key, so that each value has its own version.
`SMALL_LIMIT` is measured: see `benchmarks/`, "small maps".

Invariants: never empty: a map without user keys has no entry; a tuple has at most `small_limit` pairs; a large map
never becomes small again.

Thread safety: as the state map's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.snapshot_reader import CopyOnWriteStateMapSnapshot
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.changes import ABSENT, Op

#: Pairs up to which a map is a tuple.
SMALL_LIMIT = 16

#: The one namespace of a large map's own state map.
PLAIN = ""

_CLEARED = (Op.CLEARED,)


def position_in(small: tuple[Any, ...], user_key: Any) -> int:
    """Return the position of a user key in a small map, or -1."""
    position: cython.Py_ssize_t = 0
    while position < len(small):
        candidate = small[position]
        if candidate is user_key or candidate == user_key:
            return position  # type: ignore[no-any-return]  # to mypy a C integer is anything
        position += 2
    return -1


def small_put(
    small: tuple[Any, ...], position: cython.Py_ssize_t, user_key: Any, user_value: Any
) -> tuple[Any, ...]:
    """Return the small map with one more pair, or with another value for the pair at `position`."""
    if position < 0:
        return (*small, user_key, user_value)
    return (*small[: position + 1], user_value, *small[position + 2 :])


def small_remove(small: tuple[Any, ...], position: cython.Py_ssize_t) -> tuple[Any, ...]:
    """Return the small map without the pair at `position`."""
    return small[:position] + small[position + 2 :]


class MapKind(ValueKind):
    """The kind of small and large maps, with user values of `value_kind`."""

    __slots__ = ("small_limit", "value_kind")

    value_kind: ValueKind
    small_limit: int

    def __init__(self, value_kind: ValueKind, small_limit: int = SMALL_LIMIT) -> None:
        self.immutable = False
        self.lends = False  # the large map lends its mutable values
        self.nested = True
        self.value_kind = value_kind
        self.small_limit = small_limit if value_kind.immutable else 0

    def large_from(self, small: tuple[Any, ...], registry: SnapshotRegistry) -> CopyOnWriteStateMap:
        """Return a large map with the pairs of a small one."""
        large = CopyOnWriteStateMap(self.value_kind, registry, 2 * len(small))
        position: cython.Py_ssize_t
        for position in range(0, len(small), 2):
            large.put(small[position], PLAIN, small[position + 1])
        return large

    def holds(self, state: Any, user_key: Any) -> bool:
        """Whether a map, small or large, has a user key."""
        if isinstance(state, tuple):
            return position_in(state, user_key) >= 0
        large: CopyOnWriteStateMap = state
        return large.contains_key(user_key, PLAIN)

    def view(self, state: Any, snapshot: Any) -> Any:
        """A dict of views."""
        return dict(self.items(state, snapshot))

    def items(self, state: Any, snapshot: Any) -> Iterator[tuple[Any, Any]]:
        """The pairs, with views of the values; `snapshot` None reads the live state."""
        if isinstance(state, tuple):
            yield from zip(state[::2], state[1::2], strict=True)
        else:
            source = state if snapshot is None else CopyOnWriteStateMapSnapshot(state, snapshot)
            for user_key, _, user_value in source:
                yield user_key, user_value

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """Return user keys put and removed; if the map was cleared meanwhile: cleared, then all pairs."""
        if new is ABSENT:
            return () if old is ABSENT else (_CLEARED,)
        if new is old:
            return () if isinstance(new, tuple) else self._large_delta(new, snapshot)
        if isinstance(new, tuple) and (old is ABSENT or isinstance(old, tuple)):
            return self._small_delta(() if old is ABSENT else old, new)
        puts = [(Op.PUT, user_key, user_value) for user_key, user_value in self.items(new, None)]
        return tuple(puts) if old is ABSENT else (_CLEARED, *puts)

    def _small_delta(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[tuple[Any, ...], ...]:
        steps: list[tuple[Any, ...]] = []
        position: cython.Py_ssize_t
        for position in range(0, len(old), 2):
            if position_in(new, old[position]) < 0:
                steps.append((Op.REMOVED, old[position]))
        for position in range(0, len(new), 2):
            before: cython.Py_ssize_t = position_in(old, new[position])
            if before < 0 or old[before + 1] is not new[position + 1]:
                steps.append((Op.PUT, new[position], new[position + 1]))
        return tuple(steps)

    def _large_delta(self, large: CopyOnWriteStateMap, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        steps: list[tuple[Any, ...]] = []
        for user_key, _, changed in large.changes(snapshot):
            last = changed[len(changed) - 1]
            if last[0] is Op.CLEARED:
                steps.append((Op.REMOVED, user_key))
            else:
                steps.append((Op.PUT, user_key, last[1]))
        return tuple(steps)
