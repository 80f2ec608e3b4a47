"""What came into windows, in a state with the window as its namespace: rows, or what they were folded into.

`elements` reads one namespace, or several as if they were one: the slices of a window. What it gives is the
caller's to have and to change.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Sequence
from typing import Any

from emberstate.state.checked_functions import CheckedAggregate, CheckedReduce
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from emberstate.state.internal_states import (
    InternalAggregatingState,
    InternalListState,
    InternalReducingState,
)

#: The name of the state; where it is not kept window by window, what follows says how.
CONTENTS = "window-contents"


class WindowState(abc.ABC):
    """The content of windows of the current key."""

    __slots__ = ()

    @abc.abstractmethod
    def add(self, namespace: Hashable, row: Any) -> None:
        """Take a row in."""

    @abc.abstractmethod
    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """All rows, or the one result of all; nothing if nothing came in."""

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


class ReducingWindowState(WindowState):
    """Rows folded into one of their kind."""

    __slots__ = ("_check", "_copy", "_reduce", "_state")

    def __init__(self, state: InternalReducingState, descriptor: ReducingStateDescriptor[Any]) -> None:
        self._state = state
        self._check = descriptor.codec.check
        self._copy = descriptor.codec.copy
        self._reduce = CheckedReduce(descriptor)

    def add(self, namespace: Hashable, row: Any) -> None:
        """Fold a row in."""
        self._check(row)
        self._state.with_namespace(namespace).add(row)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """The one result."""
        whole = None
        bound = self._state.with_namespace
        for namespace in namespaces:
            part = bound(namespace).get_internal()
            if part is not None:
                part = self._copy(part)  # the function may change what it is given, and so may the caller
                whole = part if whole is None else self._reduce(whole, part)
        return [] if whole is None else [whole]

    def clear(self, namespace: Hashable) -> None:
        """Drop what is in a namespace."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Fold what is in `sources` into what is in `target`."""
        self._state.merge_namespaces(target, sources)


class AggregatingWindowState(WindowState):
    """Rows folded into an accumulator."""

    __slots__ = ("_copy", "_function", "_state")

    def __init__(self, state: InternalAggregatingState, descriptor: AggregatingStateDescriptor) -> None:
        self._state = state
        self._copy = descriptor.codec.copy
        self._function = CheckedAggregate(descriptor)

    def add(self, namespace: Hashable, row: Any) -> None:
        """Fold a row in."""
        self._state.with_namespace(namespace).add(row)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """The one result."""
        whole = None
        bound = self._state.with_namespace
        for namespace in namespaces:
            part = bound(namespace).get_internal()
            if part is not None:
                part = self._copy(part)  # the function may change what it is given, and so may the caller
                whole = part if whole is None else self._function.merge(whole, part)
        return [] if whole is None else [self._function.get_result(whole)]

    def clear(self, namespace: Hashable) -> None:
        """Drop what is in a namespace."""
        self._state.with_namespace(namespace).clear()

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Merge what is in `sources` into what is in `target`."""
        self._state.merge_namespaces(target, sources)


def window_state_for(state: Any, descriptor: StateDescriptor) -> WindowState:
    """The window state over a backend's state, by the kind of its descriptor."""
    if isinstance(descriptor, ListStateDescriptor):
        return ListWindowState(state, descriptor)
    if isinstance(descriptor, ReducingStateDescriptor):
        return ReducingWindowState(state, descriptor)
    assert isinstance(descriptor, AggregatingStateDescriptor)
    return AggregatingWindowState(state, descriptor)
