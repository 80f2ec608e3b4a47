"""Kept states: undeclared states that are carried along as bytes.

A kept state is registered with codecs that leave bytes alone and have the stored types, so that bases, deltas and later
restores keep it unchanged; a program that declares it again gets it back.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NoReturn

from emberstate.checkpoint.files.meta import TIMERS, StoredState
from emberstate.codec import TypeSchema, opaque_codec
from emberstate.errors import LifecycleError
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig, TtlTime


def keep(stored: StoredState, backend: KeyedStateBackend) -> None:
    """Register a stored state or timer queue that is kept."""
    if stored.kind == TIMERS:
        backend.keep_timer_queue(stored.name, opaque_codec(timer_namespace(stored)))
    else:
        backend.keep_state(_DESCRIPTORS[stored.kind](stored), opaque_codec(stored.namespace))


def timer_namespace(stored: StoredState) -> TypeSchema:
    """Return the type of the namespaces of a stored queue's timers."""
    assert stored.user_key is not None
    return stored.user_key.items[-1]


def _ttl(stored: StoredState) -> TtlConfig | None:
    if stored.ttl is None:
        return None
    return TtlConfig(timedelta(microseconds=stored.ttl.micros), time=TtlTime(stored.ttl.time))


def _codec(stored: StoredState) -> Any:
    assert stored.type is not None
    return opaque_codec(stored.type, stored.codec)


def _map(stored: StoredState) -> StateDescriptor:
    assert stored.user_key is not None
    return MapStateDescriptor(stored.name, opaque_codec(stored.user_key), _codec(stored), ttl=_ttl(stored))


def _undeclared(*arguments: Any) -> NoReturn:
    raise LifecycleError("the state is not declared and kept as bytes: nothing can be added to it")


class _Undeclared(AggregateFunction[Any, Any, Any]):
    def create_accumulator(self) -> Any:
        _undeclared()

    def add(self, value: Any, accumulator: Any) -> Any:
        _undeclared()

    def get_result(self, accumulator: Any) -> Any:
        _undeclared()

    def merge(self, one: Any, other: Any) -> Any:
        _undeclared()


_DESCRIPTORS: Final[dict[str, Callable[[StoredState], StateDescriptor]]] = {
    "value": lambda stored: ValueStateDescriptor(stored.name, _codec(stored), ttl=_ttl(stored)),
    "list": lambda stored: ListStateDescriptor(stored.name, _codec(stored), ttl=_ttl(stored)),
    "map": _map,
    "reducing": lambda stored: ReducingStateDescriptor(stored.name, _undeclared, _codec(stored), ttl=_ttl(stored)),
    "aggregating": lambda stored: AggregatingStateDescriptor(
        stored.name, _Undeclared(), _codec(stored), ttl=_ttl(stored)
    ),
}
