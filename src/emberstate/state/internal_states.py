"""The states that a backend implements; users hold the handles around them (`handles`, `map_handle`).

An internal state is bound to one namespace for good and reads and writes the current key's entry. It checks no types
and knows no defaults: what is absent is None (or 0, or False). `with_namespace` returns a new internal state.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any


class InternalState:
    """Operations of every internal state."""

    __slots__ = ()

    def clear(self) -> None:
        """Remove the entry of the current key."""
        raise NotImplementedError

    def with_namespace(self, namespace: Hashable) -> Any:
        """Return the same state, bound to another namespace."""
        raise NotImplementedError


class InternalValueState(InternalState):
    """One value; see `ValueState`."""

    __slots__ = ()

    def value(self) -> Any:
        """Return the value, or None. The caller owns it and may mutate it."""
        raise NotImplementedError

    def lend(self, default: Any) -> None:
        """Store `default`, a mutable value that a caller is about to get in place of an absent one, once it is mutated.

        The default does nothing: it is right where mutations of a value count only when they are written.
        """

    def update(self, value: Any) -> None:
        """Set the value, which is not None."""
        raise NotImplementedError


class InternalListState(InternalState):
    """A list; see `ListState`."""

    __slots__ = ()

    def get(self) -> list[Any] | None:
        """Return the elements (copies) as a new list, or None."""
        raise NotImplementedError

    def peek(self) -> list[Any] | None:
        """Return the elements themselves as a new list, or None; the caller must not mutate them or hand them out."""
        raise NotImplementedError

    def add(self, element: Any) -> None:
        """Append an element."""
        raise NotImplementedError

    def add_all(self, elements: list[Any]) -> None:
        """Append elements, at least one."""
        raise NotImplementedError

    def update(self, elements: list[Any]) -> None:
        """Replace the list by another, not empty."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the number of elements."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Move what the current key has in `sources` behind what it has in `target`, in order.

        No sources, or None: does nothing.
        """
        raise NotImplementedError


class InternalMapState(InternalState):
    """A map; see `MapState`."""

    __slots__ = ()

    def get(self, user_key: Any) -> Any:
        """Return the user value, or None. The caller owns it and may mutate it."""
        raise NotImplementedError

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        raise NotImplementedError

    def remove(self, user_key: Any) -> bool:
        """Remove a user key, and the entry with the last one; return whether the key was there."""
        raise NotImplementedError

    def contains(self, user_key: Any) -> bool:
        """Whether the user key is there."""
        raise NotImplementedError

    def size(self) -> int:
        """Return the number of user keys."""
        raise NotImplementedError

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over (user key, copy of the user value), or None if there is no map.

        The iteration raises RuntimeError if user keys were added or removed since this call, and LifecycleError if
        another key is current.
        """
        raise NotImplementedError

    def keys(self) -> Iterator[Any] | None:
        """Iterate over the user keys, or None if there is no map; raises as `items` does."""
        raise NotImplementedError


class InternalFoldingState(InternalState):
    """An accumulator that values are folded into; see `ReducingState` and `AggregatingState`."""

    __slots__ = ()

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        raise NotImplementedError

    def add(self, value: Any) -> None:
        """Fold a value in, which is not None. A function that raises changes nothing."""
        raise NotImplementedError

    def get_internal(self) -> Any:
        """Return the accumulator, or None."""
        raise NotImplementedError

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Merge what the current key has in `sources` into what it has in `target`, in order.

        A function that raises changes nothing. No sources, or None: does nothing.
        """
        raise NotImplementedError


class Folding:
    """The functions of a folding state. `fold` and `merge` may change and return their first argument."""

    __slots__ = ("fold", "merge", "result")

    fold: Callable[[Any, Any], Any]  #: (accumulator or None, value) -> accumulator
    merge: Callable[[Any, Any], Any]  #: (accumulator, accumulator) -> accumulator
    result: Callable[[Any], Any] | None  #: accumulator -> what a read returns; None: the accumulator itself

    def __init__(
        self,
        fold: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any],
        result: Callable[[Any], Any] | None,
    ) -> None:
        self.fold = fold
        self.merge = merge
        self.result = result


class StoredFoldingState(InternalFoldingState):
    """A folding state that a backend stores; a backend implements its reads and writes."""

    __slots__ = ("folding",)

    folding: Folding

    def operand(self) -> Any:
        """Return an accumulator that a merge function may mutate without changing the state, or None."""
        raise NotImplementedError

    def check_stored(self, accumulator: Any) -> None:
        """Raise if the accumulator cannot be stored."""

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Merge the sources left to right, and the result into `target`; `target` may be a source.

        Skips what is absent. Computes everything before it changes anything.
        """
        if not sources:
            return
        bound = [self.with_namespace(source) for source in dict.fromkeys(sources)]
        found = [(state, operand) for state in bound if (operand := state.operand()) is not None]
        if not found:
            return
        merged = found[0][1]
        for _, operand in found[1:]:
            merged = self.folding.merge(merged, operand)
        into = self.with_namespace(target)
        if target not in sources:
            old = into.operand()
            if old is not None:
                merged = self.folding.merge(old, merged)
        self.check_stored(merged)
        for state, _ in found:
            state.clear()
        into.update_internal(merged)
