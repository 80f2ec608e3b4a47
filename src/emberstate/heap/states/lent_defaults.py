"""`LentDefaults`: a default that can change, handed out by a read of nothing, counts if its holder changes it.

A read of a value state that has nothing gives a copy of its default. If that can change, the copy becomes an entry on
the spot, so that later reads give the same object. When loans are taken back (see `snapshots`), the entry of a default
that nobody changed is removed again: reading alone stores nothing.

Invariant: while something is lent, this stands before the state's maps among the registry's lenders. Once a map has
sealed an entry, its state is no longer the holder's object, by which an entry that was written since is told apart.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from emberstate.heap.states.state_table import StateTable


class LentDefaults:
    """The defaults that a value state of one namespace has handed out since loans were last taken back."""

    __slots__ = ("_lent", "_namespace", "_table")

    def __init__(self, table: StateTable, namespace: Hashable) -> None:
        self._table = table
        self._namespace = namespace
        self._lent: dict[Any, tuple[int, Any, Any]] = {}  # by key: its key group's place, the state, what it was

    def lend(self, state: Any) -> None:
        """Make `state`, a copy of the default, the current key's: it has none, and a caller is about to get this."""
        context = self._table.context
        before = self._table.kind.copy(state)
        self._table.put(self._namespace, state)
        if not self._lent:
            self._table.registry.lenders.insert(0, self)
        self._lent[context.key] = (context.position, state, before)

    def seal_loans(self) -> Callable[[], None]:
        """Find what is still as it was handed out, and give the function that removes it; the maps take back the rest.

        Comparing runs users' code, during which nothing may change.
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
