"""`LentDefaults`: mutable defaults that reads have returned; one that its holder mutates becomes the value.

A read of an absent value returns a copy of the default. A mutable copy becomes an entry at once, so that later reads
return the same object. When loans are sealed (see `snapshots`), the entry of an unchanged default is removed again:
reading alone stores nothing.

Invariant: while something is lent, this comes before the state's maps among the registry's lenders. Once a map has
sealed an entry, its state is no longer the holder's object; that object identifies entries not written since.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from emberstate.heap.states.state_table import StateTable


class LentDefaults:
    """The defaults that a value state of one namespace has returned since loans were last sealed."""

    __slots__ = ("_lent", "_namespace", "_table")

    def __init__(self, table: StateTable, namespace: Hashable) -> None:
        self._table = table
        self._namespace = namespace
        self._lent: dict[Any, tuple[int, Any, Any]] = {}  # by key: position of its key group, state, a copy

    def lend(self, state: Any) -> None:
        """Store `state`, a copy of the default that a caller is about to get; the current key has no entry."""
        context = self._table.context
        before = self._table.kind.copy(state)
        self._table.put(self._namespace, state)
        if not self._lent:
            self._table.registry.lenders.insert(0, self)
        self._lent[context.key] = (context.position, state, before)

    def seal_loans(self) -> Callable[[], None]:
        """Return a function that removes the unchanged defaults; the maps seal the others.

        Comparing runs user code, so nothing is changed meanwhile.
        """
        unchanged = []
        for key, (position, state, before) in self._lent.items():
            map = self._table.maps[position]
            if map is None or map.peek(key, self._namespace) is not state:
                continue  # removed or written since
            if not self._table.kind.delta(before, state, None):
                unchanged.append((map, key))
        self._lent.clear()

        def remove() -> None:
            for map, key in unchanged:
                map.remove(key, self._namespace)

        return remove

    def forget_loans(self) -> None:
        """Drop what is lent without looking at it: a roll-back removes the entries."""
        self._lent.clear()
