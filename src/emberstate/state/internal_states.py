"""What a backend implements for each kind of state; users hold the wrappers around these.

An internal state is a handle: bound to one namespace for good, about the current key. It checks no types and
knows no defaults: what is absent is None (or 0, or False). `with_namespace` gives another handle and leaves
this one alone.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any


class InternalState:
    """What every internal state can do."""

    __slots__ = ()

    def clear(self) -> None:
        """Remove the entry of the current key."""
        raise NotImplementedError

    def with_namespace(self, namespace: Hashable) -> Any:
        """The same state, bound to another namespace."""
        raise NotImplementedError


class InternalValueState(InternalState):
    """One value; see `ValueState`."""

    __slots__ = ()

    def value(self) -> Any:
        """Return the value for the caller to have and to change, or None."""
        raise NotImplementedError

    def lend(self, default: Any) -> None:
        """Have `default`, which can change and which a caller is about to get for want of a value, count if it does.

        Where changes to a value count only when they are written, so do those to a default: nothing to do.
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
        """Return the elements themselves as a new list, or None.

        The caller must not change nor hand them out.
        """
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
        """How many elements there are."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Move what the current key has in `sources` behind what it has in `target`, in order.

        No sources, or None: nothing is done.
        """
        raise NotImplementedError


class InternalMapState(InternalState):
    """A map; see `MapState`."""

    __slots__ = ()

    def get(self, user_key: Any) -> Any:
        """Return the user value for the caller to have and to change, or None."""
        raise NotImplementedError

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        raise NotImplementedError

    def remove(self, user_key: Any) -> bool:
        """Remove a user key, and the entry with the last one; whether it was there."""
        raise NotImplementedError

    def contains(self, user_key: Any) -> bool:
        """Whether the user key is there."""
        raise NotImplementedError

    def size(self) -> int:
        """How many user keys there are."""
        raise NotImplementedError

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over (user key, copy of the user value), or None if there is no map.

        The iteration raises RuntimeError if user keys came or went since this call, and LifecycleError if
        another key is the current one.
        """
        raise NotImplementedError

    def keys(self) -> Iterator[Any] | None:
        """Iterate over the user keys, or None if there is no map; raises as `items` does."""
        raise NotImplementedError


class InternalReducingState(InternalState):
    """A folded value; see `ReducingState`."""

    __slots__ = ()

    def get(self) -> Any:
        """Return the folded value, or None."""
        raise NotImplementedError

    def add(self, value: Any) -> None:
        """Fold a value in, which is not None; if the function raises, nothing has changed."""
        raise NotImplementedError

    def get_internal(self) -> Any:
        """Return what is stored, or None."""
        raise NotImplementedError

    def update_internal(self, value: Any) -> None:
        """Set what is stored; None clears."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Fold what the current key has in `sources` into what it has in `target`, in order.

        If the function raises, nothing has changed. No sources, or None: nothing is done.
        """
        raise NotImplementedError


class InternalAggregatingState(InternalState):
    """An accumulator; see `AggregatingState`."""

    __slots__ = ()

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        raise NotImplementedError

    def add(self, value: Any) -> None:
        """Add a value, which is not None; if the function raises, nothing has changed."""
        raise NotImplementedError

    def get_internal(self) -> Any:
        """Return the accumulator, or None."""
        raise NotImplementedError

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        raise NotImplementedError

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Merge what the current key has in `sources` into what it has in `target`, in order.

        If the function raises, nothing has changed. No sources, or None: nothing is done.
        """
        raise NotImplementedError
