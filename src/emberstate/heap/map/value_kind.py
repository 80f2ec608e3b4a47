"""How a state map treats the states it holds: copied when, taken back how, and what has changed in one.

`ValueKind` itself is for immutable values: never copied, never lent. `MutableKind` is for a value that its holder may
change. Lists and maps have kinds of their own (`list_value`, `map_value`), which is what keeps a change to one
element of a large one cheap.

Thread safety: kinds hold no state; `view` may be called by a snapshot's reader while the owner calls the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.state.changes import ABSENT, Op

_CLEARED = ((Op.CLEARED,),)


class ValueKind:
    """The kind of immutable values, and the interface of the others.

    immutable: a read hands out the state as it is; only a write is a change.
    lends: what is handed out or in can be changed by its holder, and is sealed before the next snapshot.
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
        """What the map keeps and hands out for change, instead of a `state` that a snapshot shares."""
        return state

    def seal(self, state: Any, old: Any) -> Any:
        """What the map keeps instead of a lent `state`, so that its holder no longer reaches it."""
        return state

    def view(self, state: Any, snapshot: Any) -> Any:
        """What a reader gets: nothing it does to it changes the state. `snapshot` None reads the live state."""
        return state

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """The steps from `old` (as `snapshot` saw it, or ABSENT) to `new` (sealed, or ABSENT); () if none."""
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
        """A copy that shares nothing changeable with `state`."""
        return self._copy(state)

    def seal(self, state: Any, old: Any) -> Any:
        """`old` itself if the holder left the value as it was, else a copy of what it made of it."""
        if old is not ABSENT and self._same(old, state):
            return old
        return self._copy(state)

    def view(self, state: Any, snapshot: Any) -> Any:
        """A copy."""
        return self._copy(state)

    def delta(self, old: Any, new: Any, snapshot: Any) -> tuple[tuple[Any, ...], ...]:
        """No step if the two are alike, be they one object or not: changed and changed back, or put again."""
        if new is ABSENT:
            return () if old is ABSENT else _CLEARED
        if old is not ABSENT and (new is old or self._same(old, new)):
            return ()
        return ((Op.REPLACED, new),)


IMMUTABLE = ValueKind()
