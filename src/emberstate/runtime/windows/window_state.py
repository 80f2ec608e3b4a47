"""The contents of windows, in a state with the window as its namespace: rows, or what they were folded into.

`elements` reads one namespace, or several as if they were one: the slices of a window. The caller owns what it returns
and may mutate it.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from emberstate.codec import Codec
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from emberstate.state.folding import folding_of
from emberstate.state.internal_states import Folding, InternalFoldingState, InternalListState

#: The name of the state; contents that are not stored window by window have a suffix.
CONTENTS = "window-contents"


class WindowState(abc.ABC):
    """The content of windows of the current key."""

    __slots__ = ()

    @abc.abstractmethod
    def add(self, namespace: Hashable, row: Any) -> None:
        """Add a row."""

    @abc.abstractmethod
    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """Return all rows, or their one result in a list; an empty list if there are none."""

    @abc.abstractmethod
    def clear(self, namespace: Hashable) -> None:
        """Drop what is in a namespace."""

    @abc.abstractmethod
    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Move what is in `sources` behind what is in `target`."""


class ListWindowState(WindowState):
    """The rows themselves."""

    __slots__ = ("_check", "_state")

    def __init__(self, state: InternalListState, descriptor: ListStateDescriptor[Any]) -> None:
        self._state = state
        self._check = descriptor.codec.check

    def add(self, namespace: Hashable, row: Any) -> None:
        """Keep a row."""
        self._check(row)
        self._state.with_namespace(namespace).add(row)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """The rows, namespace by namespace, in the order they came."""
        rows: list[Any] = []
        for namespace in namespaces:
            rows += self._state.with_namespace(namespace).get() or ()
        return rows

    def clear(self, namespace: Hashable) -> None:
        """Drop what is in a namespace."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Move what is in `sources` behind what is in `target`."""
        self._state.merge_namespaces(target, sources)


class FoldingWindowState(WindowState):
    """Rows folded into an accumulator; `check` checks a row, if its type is declared."""

    __slots__ = ("_check", "_copy", "_folding", "_state")

    def __init__(
        self, state: InternalFoldingState, folding: Folding, codec: Codec[Any], check: Callable[[Any], None] | None
    ) -> None:
        self._state = state
        self._folding = folding
        self._copy = None if codec.immutable else codec.copy
        self._check = check

    def add(self, namespace: Hashable, row: Any) -> None:
        """Fold a row in."""
        if self._check is not None:
            self._check(row)
        self._state.with_namespace(namespace).add(row)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """Return the one result in a list, or an empty list."""
        whole = None
        bound = self._state.with_namespace
        for namespace in namespaces:
            part = bound(namespace).get_internal()
            if part is not None:
                if self._copy is not None:
                    part = self._copy(part)  # the merge function may mutate it, and so may the caller
                whole = part if whole is None else self._folding.merge(whole, part)
        if whole is None:
            return []
        result = self._folding.result
        return [whole if result is None else result(whole)]

    def clear(self, namespace: Hashable) -> None:
        """Drop what is in a namespace."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Merge what is in `sources` into what is in `target`."""
        self._state.merge_namespaces(target, sources)


def window_state_for(state: Any, descriptor: StateDescriptor) -> WindowState:
    """Return the window state over a backend's state, by the kind of its descriptor."""
    if isinstance(descriptor, ListStateDescriptor):
        return ListWindowState(state, descriptor)
    assert isinstance(descriptor, ReducingStateDescriptor | AggregatingStateDescriptor)
    check = descriptor.codec.check if isinstance(descriptor, ReducingStateDescriptor) else None
    return FoldingWindowState(state, folding_of(descriptor), descriptor.codec, check)
