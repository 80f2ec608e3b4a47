"""How a state map treats the states it holds: when it copies them, how it seals them, how it lists their changes.

`ValueKind` itself is for immutable values: never copied, never lent. `MutableKind` is for values that their holder may
mutate. Lists and maps have kinds of their own (`list_value`, `map_value`), which keep a change to one element of a
large one cheap.

Thread safety: kinds hold no state; a snapshot's reader may call `view` while the owner calls the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.state.changes import ABSENT, Op

_CLEARED = ((Op.CLEARED,),)


class ValueKind:
    """The kind of immutable values, and the interface of the others.

    immutable: a read hands out the state itself; only a write is a change.
    lends: the holder of a value handed out or in can mutate it; it is sealed before the next snapshot.
    nested: a state can change while staying the same object (it is a map of its own with its own versions).
    """

    __slots__ = ("immutable", "lends", "nested")

    immutable: bool
    lends: bool
    nested: bool

    def __init__(self) -> None:
        self.immutable = True
        self.lends = False
        self.nested = False

    def copy(self, state: Any) -> Any:
        """Return what the map keeps and hands out for change in place of a `state` that a snapshot shares."""
        return state

    def seal(self, state: Any, old: Any) -> Any:
        """Return what the map keeps in place of a lent `state`, and its holder cannot reach."""
        return state

    def view(self, state: Any, snapshot: Any) -> Any:
        """Return what a reader gets; mutating it does not change the state. `snapshot` None reads the live state."""
        return state

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """Return the steps from `old` (as `snapshot` saw it, or ABSENT) to `new` (sealed, or ABSENT); () if none."""
        if new is old:
            return ()
        if new is ABSENT:
            return _CLEARED
        return ((Op.REPLACED, new),)


class MutableKind(ValueKind):
    """The kind of values that can change in place: copied on the first read after a snapshot.

    >>> kind = MutableKind(list.copy, list.__eq__)
    >>> old = [1]
    >>> kind.seal(kind.copy(old), old) is old         # lent, given back unchanged: no change
    True
    """

    __slots__ = ("_copy", "_same")

    _copy: Callable[[Any], Any]
    _same: Callable[[Any, Any], bool]

    def __init__(self, copy: Callable[[Any], Any], same: Callable[[Any, Any], bool]) -> None:
        self.immutable = False
        self.lends = True
        self.nested = False
        self._copy = copy
        self._same = same

    def copy(self, state: Any) -> Any:
        """Return a copy that shares nothing mutable with `state`."""
        return self._copy(state)

    def seal(self, state: Any, old: Any) -> Any:
        """Return `old` itself if the holder left the value unchanged, else a copy of what it made of it."""
        if old is not ABSENT and self._same(old, state):
            return old
        return self._copy(state)

    def view(self, state: Any, snapshot: Any) -> Any:
        """Return a copy."""
        return self._copy(state)

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """Return no step if the two are equal: the same object, changed and changed back, or put again."""
        if new is ABSENT:
            return () if old is ABSENT else _CLEARED
        if old is not ABSENT and (new is old or self._same(old, new)):
            return ()
        return ((Op.REPLACED, new),)


IMMUTABLE = ValueKind()
