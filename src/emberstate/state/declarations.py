"""Declaring states to a backend: checks that every declaration of a name agrees, and makes the handles.

All backends share it. `StateHandles` names the classes of a backend's own states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from emberstate.codec import Codec, OpaqueCodec
from emberstate.errors import StateDeclarationError
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.folding import folding_of
from emberstate.state.handles import (
    UserFacingAggregatingState,
    UserFacingListState,
    UserFacingReducingState,
    UserFacingValueState,
)
from emberstate.state.map_handle import UserFacingMapState
from emberstate.state.ttl.states import (
    Expiry,
    TtlFoldingState,
    TtlListState,
    TtlMapState,
    TtlValueState,
    stamped_folding,
)

#: Most states and timer queues of one backend: the limit of a state file.
MAX_STATES: Final = 10_000

_USER_FACING: dict[str, Callable[[Any, Any], Any]] = {
    ValueStateDescriptor.kind: UserFacingValueState,
    ListStateDescriptor.kind: UserFacingListState,
    MapStateDescriptor.kind: UserFacingMapState,
    ReducingStateDescriptor.kind: UserFacingReducingState,
    AggregatingStateDescriptor.kind: UserFacingAggregatingState,
}


def user_facing(internal: Any, descriptor: StateDescriptor) -> Any:
    """Return the user's handle on an internal state."""
    return _USER_FACING[descriptor.kind](internal, descriptor)


@dataclasses.dataclass(frozen=True, slots=True)
class StateHandles:
    """The classes of a backend's states: each is made of (table, namespace), a folding one of its `Folding` too."""

    value: Callable[[Any, Any], Any]
    list: Callable[[Any, Any], Any]
    map: Callable[[Any, Any], Any]
    folding: Callable[[Any, Any, Any], Any]

    def internal(self, descriptor: StateDescriptor, table: Any, namespace: Any, expiry: Expiry | None) -> Any:
        """Return the internal state of a descriptor; one with time to live hides and removes what has expired."""
        if isinstance(descriptor, ValueStateDescriptor):
            value = self.value(table, namespace)
            return value if expiry is None else TtlValueState(value, expiry)
        if isinstance(descriptor, ListStateDescriptor):
            elements = self.list(table, namespace)
            return elements if expiry is None else TtlListState(elements, expiry)
        if isinstance(descriptor, MapStateDescriptor):
            pairs = self.map(table, namespace)
            return pairs if expiry is None else TtlMapState(pairs, expiry)
        if isinstance(descriptor, ReducingStateDescriptor | AggregatingStateDescriptor):
            folding = folding_of(descriptor)
            if expiry is None:
                return self.folding(table, namespace, folding)
            stamped = self.folding(table, namespace, stamped_folding(folding, expiry))
            return TtlFoldingState(stamped, expiry, folding)
        raise StateDeclarationError(f"{descriptor!r} is not one of the five state descriptors")


def check_declared(what: str, name: str, namespace_codec: Codec[Any]) -> None:
    """Raise for a handle on state that was restored undeclared, as bytes."""
    if isinstance(namespace_codec, OpaqueCodec):
        raise StateDeclarationError(
            f"{what} {name!r} was not declared when state was restored and is kept as bytes (keep_states): declare it "
            f"before the restore, so that it is decoded",
            state=name,
        )


def check_same_declaration(
    first: StateDescriptor,
    first_namespace: Codec[Any],
    second: StateDescriptor,
    second_namespace: Codec[Any],
) -> None:
    """Raise if two declarations of a name disagree.

    Functions are not compared: every declaration may make its own, and the first one is used.
    """
    before = {**first.declared(), "namespace type": first_namespace.schema}
    now = {**second.declared(), "namespace type": second_namespace.schema}
    for what in before:  # the kind comes first: only descriptors of one kind have the same fields
        if before[what] != now[what]:
            raise StateDeclarationError(
                f"state {second.name!r} is registered already with another {what}: {before[what]!r}, now "
                f"{now[what]!r}. State names are unique: choose another name, or declare it the same everywhere.",
                state=second.name,
                option=what,
                expected=before[what],
                found=now[what],
            )


def check_room(states: int, queues: int, name: str) -> None:
    """Raise for one more state or timer queue than a state file may have."""
    if states + queues >= MAX_STATES:
        raise StateDeclarationError(
            f"{name!r} would be one more than the {MAX_STATES:,} states and timer queues that a backend may have: "
            f"use a map state with user keys, or namespaces, for what has no name of its own",
            state=name,
        )
