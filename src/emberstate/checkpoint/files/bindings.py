"""`StateBinding`: a declared state as files store it, with the codecs of its parts; bindings have one order.

A binding needs no backend: the driver makes them from descriptors, to check a restore.

Thread safety: bindings are immutable. They are made on the owner's thread, or from a snapshot on any thread.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import GenericAlias
from typing import Any

from emberstate.checkpoint.files.meta import TIMERS, FileMeta, StoredState, StoredTtl
from emberstate.codec import Codec, OpaqueCodec, TypeSchema, key_codec_for, opaque_timer_codec
from emberstate.keygroups import KeyGroupRange
from emberstate.state.descriptors import MapStateDescriptor, StateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.registered_state import EntryTable, RegisteredState
from emberstate.state.timers import VOID_NAMESPACE, TimerQueue
from emberstate.state.ttl.config import TtlConfig


@dataclasses.dataclass(frozen=True, slots=True)
class StateBinding:
    """A declared state or timer queue, and how its parts are encoded."""

    stored: StoredState
    codec: Codec[Any] | None  # None for timers, which have no value
    user_key_codec: Codec[Any] | None
    namespace_codec: Codec[Any]
    ttl: TtlConfig | None

    @property
    def label(self) -> str:
        """The state's description for messages."""
        return self.stored.label

    @property
    def is_kept(self) -> bool:
        """Whether it is undeclared, and kept as bytes."""
        codec = self.user_key_codec if self.codec is None else self.codec
        return isinstance(codec, OpaqueCodec)


def bindings_of(backend: KeyedStateBackend, snapshot: KeyedStateSnapshot | None = None) -> list[StateBinding]:
    """Return the states registered now, or when `snapshot` was taken, in the order of a file."""
    states: Mapping[str, RegisteredState[EntryTable]]
    states = backend.registered_states if snapshot is None else snapshot.states
    queues: Mapping[str, TimerQueue] = backend.timer_queues if snapshot is None else snapshot.timer_queues
    bindings = [_state_binding(state.descriptor, state.namespace_codec) for state in states.values()]
    bindings += [_queue_binding(name, queue.namespace_codec) for name, queue in queues.items()]
    return sorted(bindings, key=lambda binding: binding.stored.identity)


def binding_of_state(descriptor: StateDescriptor, namespace_type: Any = str) -> StateBinding:
    """Return the binding of a declared state, without a backend.

    >>> from emberstate.state.descriptors import ValueStateDescriptor
    >>> binding_of_state(ValueStateDescriptor("total", int)).label
    "value state 'total'"
    """
    return _state_binding(descriptor, key_codec_for(namespace_type, where=f"namespace of state {descriptor.name!r}"))


def binding_of_queue(name: str, namespace_type: Any = str) -> StateBinding:
    """Return the binding of a declared timer queue, without a backend."""
    return _queue_binding(name, key_codec_for(namespace_type, where=f"namespace of timer queue {name!r}"))


def meta_of(backend: KeyedStateBackend, kind: str, groups: KeyGroupRange, bindings: list[StateBinding]) -> FileMeta:
    """Return the metadata of a file with these states."""
    context = backend.context
    stored = tuple(binding.stored for binding in bindings)
    return FileMeta(kind, context.key_schema.type_names, context.max_parallelism, groups, stored)


def _state_binding(descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> StateBinding:
    ttl = descriptor.ttl
    key_codec = descriptor.key_codec if isinstance(descriptor, MapStateDescriptor) else None
    stored = StoredState(
        descriptor.name,
        descriptor.kind,
        descriptor.codec.name,
        descriptor.codec.schema,
        None if key_codec is None else key_codec.schema,
        namespace_codec.schema,
        None if ttl is None else StoredTtl(ttl.micros, ttl.time.value),
    )
    return StateBinding(stored, descriptor.codec, key_codec, namespace_codec, ttl)


def _queue_binding(name: str, timer_namespace: Codec[Any]) -> StateBinding:
    timer, namespace = _timer_codecs(timer_namespace.type)
    if isinstance(timer_namespace, OpaqueCodec):
        parts = (*timer.schema.items[:2], timer_namespace.schema)
        timer = opaque_timer_codec(TypeSchema("tuple", parts))
    stored = StoredState(name, TIMERS, "msgspec", None, timer.schema, namespace.schema, None)
    return StateBinding(stored, None, timer, namespace, None)


@functools.lru_cache(maxsize=64)
def _timer_codecs(namespace_type: Any) -> tuple[Codec[Any], Codec[Any]]:
    """Return the codecs of (time, name, namespace), and of the void namespace of the entries that hold timers."""
    timer = key_codec_for(GenericAlias(tuple, (int, str, namespace_type)), where="timer")
    return timer, key_codec_for(type(VOID_NAMESPACE), where="namespace of timers")
