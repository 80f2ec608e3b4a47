"""The states of a backend as files see them: in one order, each with the codecs of its parts.

Thread safety: bindings are immutable. They are made on the owner's thread, or from a snapshot on any.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from types import GenericAlias
from typing import Any

from emberstate.checkpoint.state_meta import TIMERS, FileMeta, StoredState, StoredTtl
from emberstate.codec import Codec, key_codec_for
from emberstate.heap.heap_keyed_state_backend import HeapKeyedStateBackend, RegisteredState
from emberstate.heap.heap_snapshot import HeapSnapshot
from emberstate.heap.heap_timer_queue import HeapTimerQueue
from emberstate.heap.state_table import StateTable
from emberstate.keygroups import KeyGroupRange
from emberstate.state.descriptors import MapStateDescriptor
from emberstate.state.timers import VOID_NAMESPACE
from emberstate.state.ttl import TtlConfig


@dataclasses.dataclass(frozen=True, slots=True)
class StateBinding:
    """A registered state or timer queue, and how its parts are encoded."""

    stored: StoredState
    table: StateTable
    codec: Codec[Any] | None  # None for timers, which have no value
    user_key_codec: Codec[Any] | None
    namespace_codec: Codec[Any]
    ttl: TtlConfig | None

    @property
    def label(self) -> str:
        """How messages call the state."""
        what = "timer queue" if self.stored.kind == TIMERS else f"{self.stored.kind} state"
        return f"{what} {self.stored.name!r}"


def bindings_of(backend: HeapKeyedStateBackend, snapshot: HeapSnapshot | None = None) -> list[StateBinding]:
    """What is registered now, or was when `snapshot` was taken, in the order of a file."""
    # The backend hands out tables and handles; descriptors and queues it keeps to itself.
    states: Mapping[str, RegisteredState] = backend._states if snapshot is None else snapshot.states
    queues = backend._timer_queues if snapshot is None else snapshot._queues
    bindings = [_of_state(registered) for registered in states.values()]
    bindings += [_of_queue(queue) for queue in queues.values()]
    return sorted(bindings, key=lambda binding: binding.stored.identity)


def meta_of(backend: HeapKeyedStateBackend, kind: str, groups: KeyGroupRange, bindings: list[StateBinding]) -> FileMeta:
    """The metadata of a file with these states."""
    context = backend.context
    stored = tuple(binding.stored for binding in bindings)
    return FileMeta(kind, context.key_schema.type_names, context.max_parallelism, groups, stored)


def _of_state(registered: RegisteredState) -> StateBinding:
    descriptor = registered.descriptor
    ttl = descriptor.ttl
    key_codec = descriptor.key_codec if isinstance(descriptor, MapStateDescriptor) else None
    stored = StoredState(
        descriptor.name,
        descriptor.kind,
        descriptor.codec.name,
        descriptor.codec.schema,
        None if key_codec is None else key_codec.schema,
        registered.namespace_codec.schema,
        None if ttl is None else StoredTtl(ttl.micros, ttl.time.value),
    )
    return StateBinding(stored, registered.table, descriptor.codec, key_codec, registered.namespace_codec, ttl)


def _of_queue(queue: HeapTimerQueue) -> StateBinding:
    timer, namespace = _timer_codecs(queue.namespace_codec.type)
    stored = StoredState(queue.table.name, TIMERS, "msgspec", None, timer.schema, namespace.schema, None)
    return StateBinding(stored, queue.table, None, timer, namespace, None)


@functools.lru_cache(maxsize=64)
def _timer_codecs(namespace_type: Any) -> tuple[Codec[Any], Codec[Any]]:
    """Codecs of (time, name, namespace), and of the (void) namespace of the entries that hold timers."""
    timer = key_codec_for(GenericAlias(tuple, (int, str, namespace_type)), where="timer")
    return timer, key_codec_for(type(VOID_NAMESPACE), where="namespace of timers")
