# cython: boundscheck=False, wraparound=False
"""The content of a list state for one key: a list that is only appended to, so that old versions cost nothing.

An `AppendList` is a header: a Python list shared between versions, and the length that this version sees. Copying a
version for writing copies the header; appends go to the shared list, beyond what older headers see.

Invariants: what a header reachable from a live snapshot sees never changes. A header that sees less than the whole list
was rolled back to: the rest was undone and is cut off before the next append, unless a live snapshot on a side branch
still sees it; then the list forks.

Thread safety: the map's owner appends; a snapshot's reader may slice the shared list meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.changes import ABSENT, Op

if not cython.compiled:  # compiled, it is the C function of gc_sight.pxd
    from emberstate.heap.map.gc_sight import untrack

_CLEARED = (Op.CLEARED,)


@cython.no_gc
@cython.final
@cython.cclass
class AppendList:
    """One version of one key's list."""

    __slots__ = ("items", "length")

    items: list[Any]
    length: int

    def append(self, element: Any, registry: SnapshotRegistry) -> int:
        """Append an element to this version, which must be the live one, copied for writing."""
        if self.length < len(self.items):
            if registry.branched():
                self.items = self.items[: self.length]
                untrack(self.items)
            else:
                del self.items[self.length :]
        self.items.append(element)
        self.length += 1
        return 0

    def elements(self) -> list[Any]:
        """Return what this version sees, as a new list."""
        return self.items[: self.length]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"AppendList({self.elements()!r})"


def new_append_list(items: list[Any], length: cython.Py_ssize_t) -> AppendList:
    """Return a header that sees the first `length` of `items`."""
    header: AppendList = AppendList.__new__(AppendList)
    header.items = items
    header.length = length
    return header


def append_list_of(elements: Iterable[Any]) -> AppendList:
    """Return a new version of `elements`; the container is copied, the elements are not."""
    return append_list_over(list(elements))


def append_list_over(items: list[Any]) -> AppendList:
    """Return a version of `items` itself; the caller gives the list away."""
    untrack(items)
    return new_append_list(items, len(items))


class ListKind(ValueKind):
    """The kind of `AppendList` states; `copy_element` is None for immutable elements."""

    __slots__ = ("_copy_element",)

    _copy_element: Callable[[Any], Any] | None

    def __init__(self, copy_element: Callable[[Any], Any] | None) -> None:
        self.immutable = False
        self.lends = copy_element is not None
        self.nested = False
        self._copy_element = copy_element

    def copy(self, state: Any) -> Any:
        """A new header over the same list: O(1)."""
        header: AppendList = state
        return new_append_list(header.items, header.length)

    def seal(self, state: Any, old: Any) -> Any:
        """Replace the elements added since `old` by copies, in place: no older version sees them."""
        header: AppendList = state
        position: cython.Py_ssize_t = 0
        if old is not ABSENT and old.items is header.items:
            position = old.length
        copy_element = self._copy_element
        if copy_element is not None:
            while position < header.length:
                header.items[position] = copy_element(header.items[position])
                position += 1
        return state

    def view(self, state: Any, snapshot: Any) -> Any:
        """A list of copies."""
        elements: list[Any] = state.elements()
        if self._copy_element is None:
            return elements
        return [self._copy_element(element) for element in elements]

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """Return what was appended; if the list was replaced: cleared, then all of the new one."""
        if new is ABSENT:
            return () if old is ABSENT else (_CLEARED,)
        if old is ABSENT:
            return ((Op.APPENDED, new.elements()),)
        if old.items is new.items and old.length <= new.length:
            return () if old.length == new.length else ((Op.APPENDED, new.items[old.length : new.length]),)
        return (_CLEARED, (Op.APPENDED, new.elements()))
