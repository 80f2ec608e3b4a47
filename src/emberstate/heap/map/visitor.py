"""`IncrementalVisitor`: walks a state map in small parts while it is used; background expiry is built on it.

A visitor reads a bounded part of the map per call and holds nothing in between: the map may be written, grow and be
rolled back. It visits an entry that is present all the time exactly once, and one that is added or removed meanwhile
at most once.

Thread safety: the map's owner thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.heap.map.interface import StateMap

#: Buckets read per call, by default.
DEFAULT_MAX_BUCKETS = 64


def check_max_buckets(max_buckets: int) -> int:
    """Return `max_buckets`; raises `StateDeclarationError` if it is below 1."""
    if max_buckets < 1:
        what = f"visitor() failed: expected max_buckets of at least 1, got {max_buckets}"
        raise StateDeclarationError(what, option="max_buckets", expected=1, found=max_buckets)
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
        """Visit `parts`, which yields the entries of some buckets at a time, as they are at that moment."""
        self._map = map
        self._parts = parts

    def next_entries(self) -> list[tuple[Any, Any, Any]] | None:
        """Return (key, namespace, state) of the entries in the next buckets, perhaps none; None at the end.

        States are the map's own, as from `peek`: the caller must neither mutate nor keep them.
        """
        return next(self._parts, None)

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove an entry; returns whether it was still there."""
        return self._map.remove(key, namespace)

    def update(self, key: Hashable, namespace: Hashable, state: Any) -> None:
        """Set the state of an entry; adds the entry if it was removed since it was visited."""
        self._map.put(key, namespace, state)
