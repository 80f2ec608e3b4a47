"""Which state and key a value belongs to that a commit refuses.

Values that were handed out for change are looked at when changes are listed, before anything is encoded, and
a wrong one is refused there by somebody who knows neither its state nor its key. Looking for it takes time,
on the way to an error only.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emberstate.codec import Codec
from emberstate.errors import CodecError, StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.states.list_value import AppendList
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.stamped import Stamped


def located(error: StateTypeError, backend: KeyedStateBackend) -> StateTypeError:
    """The error with the state and key whose value it is about; as it is, if that cannot be told."""
    if not isinstance(backend, HeapKeyedStateBackend):
        return error  # other backends hand nothing out for change
    for name, state in backend.registered_states.items():
        codec = state.descriptor.codec
        if codec.immutable:
            continue
        for _, map in state.table.used_maps():
            for key, namespace, value in _lent(map):
                found = _problem(codec, value)
                if found is not None:
                    label = f"{state.descriptor.kind} state {name!r}"
                    return StateTypeError(f"{label}, key {key!r}, namespace {namespace!r}: {found}")
    return error


def _lent(map: StateMap) -> Iterator[tuple[Any, Any, Any]]:
    """(key, namespace, value) of what was handed out; of a map's user values, with the key they belong to."""
    if not isinstance(map, CopyOnWriteStateMap):
        loans: dict[tuple[Any, Any], Any] = getattr(map, "loans", {})
        yield from ((key, namespace, map.peek(key, namespace)) for key, namespace in loans)
        return
    yield from ((entry.key, entry.namespace, entry.state) for entry in map.loans[::2])
    if map.kind.nested:
        capacity = map.primary.capacity
        for number in range(capacity):
            for entry in map.cell(number, capacity):
                if isinstance(entry.state, CopyOnWriteStateMap):
                    yield from ((entry.key, entry.namespace, lent.state) for lent in entry.state.loans[::2])


def _problem(codec: Codec[Any], value: Any) -> str | None:
    if isinstance(value, AppendList):
        return next((found for part in value.elements() if (found := _problem(codec, part)) is not None), None)
    if isinstance(value, Stamped):
        value = value.value
    try:
        if value is not None:
            codec.check_deep(value)
    except (StateTypeError, CodecError) as error:
        return str(error)
    return None
