"""Walking a state map a little at a time while it is used: what expiry in the background is made of.

A visitor looks at a bounded part of the map per call and keeps no hold on it in between: puts, removals,
growth and roll-backs are all fine. What is present all the time is visited exactly once; what comes or goes
meanwhile may be visited or not, never twice.

Thread safety: for the map's owner, as the map itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from emberstate.heap.map.interface import StateMap

#: Buckets looked at per call, unless the caller says otherwise.
DEFAULT_MAX_BUCKETS = 64


def check_max_buckets(max_buckets: int) -> int:
    """The number, if it is one that a walk can come forward with."""
    if max_buckets < 1:
        raise ValueError(f"max_buckets must be at least 1, not {max_buckets}")
    return max_buckets


class IncrementalVisitor:
    """What `visitor()` of a state map returns.

    >>> from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
    >>> from emberstate.heap.map.value_kind import IMMUTABLE
    >>> states = CopyOnWriteStateMap(IMMUTABLE)
    >>> for key in range(5):
    ...     states.put(key, "", key * key)
    >>> visitor = states.visitor(max_buckets=4)
    >>> while (entries := visitor.next_entries()) is not None:
    ...     for key, namespace, state in entries:
    ...         if state > 8:
    ...             removed = visitor.remove(key, namespace)
    >>> sorted(states)
    [(0, '', 0), (1, '', 1), (2, '', 4)]
    """

    __slots__ = ("_map", "_parts")

    def __init__(self, map: StateMap, parts: Iterator[list[tuple[Any, Any, Any]]]) -> None:
        """Walk `parts`, which gives the entries of some buckets at a time, as they are when it is asked."""
        self._map = map
        self._parts = parts

    def next_entries(self) -> list[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, state) of what the next buckets hold, perhaps nothing; None at the end.

        States are those of the map itself, as `peek` gives them: to look at only, and not to keep.
        """
        return next(self._parts, None)

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove an entry; whether it was still there."""
        return self._map.remove(key, namespace)

    def update(self, key: Hashable, namespace: Hashable, state: Any) -> None:
        """Set the state of an entry, which is put back if it was removed since it was visited."""
        self._map.put(key, namespace, state)
