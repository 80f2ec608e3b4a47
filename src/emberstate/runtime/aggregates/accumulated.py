"""`Accumulated`: all that a stage has accumulated for a key and window: the record, and the states beside it.

A namespace has content if and only if it has a record.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from emberstate.runtime.aggregates.own_states import own_descriptor, own_state
from emberstate.runtime.aggregates.record import RecordFunction
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.windows.window_state import WindowState, window_state_for
from emberstate.state.descriptors import AggregatingStateDescriptor, StateDescriptor


def record_descriptor(name: str, spec: AggregateSpec) -> AggregatingStateDescriptor:
    """The state with the record; its values are stored as maps by column name."""
    function = RecordFunction(spec)
    return AggregatingStateDescriptor(name, function, function.record_class)


def own_descriptors(name: str, spec: AggregateSpec) -> dict[str, StateDescriptor]:
    """The states beside the record that is called `name`, by aggregate."""
    return {
        aggregate_name: own_descriptor(f"{name}: {aggregate.stored_as(aggregate_name)}", aggregate, spec)
        for aggregate_name, aggregate in spec.aggregates
        if not aggregate.in_record
    }


class Accumulated(WindowState):
    """Partial rows in, results out."""

    __slots__ = ("_own", "_record")

    def __init__(
        self, spec: AggregateSpec, descriptor: AggregatingStateDescriptor, open_state: Callable[[StateDescriptor], Any]
    ) -> None:
        """`open_state` returns a backend's state for a descriptor."""
        self._record = window_state_for(open_state(descriptor), descriptor)
        described = own_descriptors(descriptor.name, spec)
        self._own = [
            (place, own_state(name, aggregate, spec, described[name], open_state(described[name])))
            for place, (name, aggregate) in enumerate(spec.aggregates)
            if name in described
        ]

    def add(self, namespace: Hashable, row: Any) -> None:
        """Merge a partial row in."""
        self._record.add(namespace, row)
        for _, own in self._own:
            own.add(namespace, row)

    def elements(self, namespaces: Sequence[Hashable]) -> list[Any]:
        """Return one list with the result of every aggregate; an empty list if there were no rows."""
        found = self._record.elements(namespaces)
        for results in found:
            for place, own in self._own:
                [results[place]] = own.elements(namespaces)
        return found

    def clear(self, namespace: Hashable) -> None:
        """Drop all of it."""
        self._record.clear(namespace)
        for _, own in self._own:
            own.clear(namespace)

    def merge(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Merge what is in `sources` into what is in `target`."""
        self._record.merge(target, sources)
        for _, own in self._own:
            own.merge(target, sources)
