"""Reads state from outside: what a checkpoint holds, as plain Python.

Nothing of the live state is touched, not even the stamp of a time to live. That the checkpoint holds what the live
state does is checked after every transaction (`round_trip`), so this is the live state too. What has expired is not
shown.

Thread safety: the owner's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from emberstate.checkpoint.manifest.model import Operator
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeyGroupRange
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.operator.runner import TIMER_QUEUES
from emberstate.runtime.operator.slot import broadcast_operator_name
from emberstate.state.descriptors import AggregatingStateDescriptor, StateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.filter import unexpired
from emberstate.state.ttl.stamped import Stamped
from emberstate.testing.local_job import LocalJob
from emberstate.testing.round_trip import restored_copy


class StateEntry(NamedTuple):
    """One entry of a state; the value is what the state's handle would give, a list and a map as a whole."""

    key: Any
    namespace: Any
    value: Any


def entries(job: LocalJob, state: str, key: Any = None) -> Iterator[StateEntry]:
    """The entries of a keyed state: of one key, or of all if it is None."""
    operator = job.latest.operators[0]
    for backend in _copies(job, operator, key):
        try:
            yield from _entries(job, backend, state, key)
        finally:
            backend.close()


def broadcast_entries(job: LocalJob, state: str) -> dict[Any, Any]:
    """A broadcast map."""
    operator = job.latest.operator(broadcast_operator_name(job.spec.name))
    side = job.declared_like(0).broadcast_backend
    if operator is None or side is None:
        raise StateDeclarationError(f"operator {job.spec.name!r} has no broadcast state", operator=job.spec.name)
    backend = restored_copy(side, job.storage, operator, operator.slots[0])
    try:
        found = list(_entries(job, backend, state, None))
    finally:
        backend.close()
    return found[0].value if found else {}


def timers(job: LocalJob, key: Any = None) -> list[KeyedTimer]:
    """The timers of one key, or of all, in firing order; of equal times, those of event time first."""
    found: list[tuple[Any, KeyedTimer]] = []
    for backend in _copies(job, job.latest.operators[0], key):
        try:
            for domain, name in TIMER_QUEUES.items():
                queue = backend.timer_queues[name]
                encode = queue.namespace_codec.encode
                for group in backend.context.key_group_range:
                    for time, of_key, timer_name, namespace in queue.timers_of_group(group):
                        if key is None or of_key == job.spec.key_schema.normalise(key):
                            timer = KeyedTimer(timer_name, time, of_key, namespace, domain)
                            found.append(((time, domain.value, of_key, timer_name, encode(namespace)), timer))
        finally:
            backend.close()
    return [timer for _, timer in sorted(found, key=lambda pair: pair[0])]


def _copies(job: LocalJob, operator: Operator, key: Any) -> Iterator[KeyedStateBackend]:
    """The stored state, slot by slot; of the key's own key group, if there is a key."""
    group = None if key is None else job.spec.key_schema.key_group(key, job.spec.max_parallelism)
    for slot, chain in enumerate(operator.slots):
        if group is None or group in chain.key_groups:
            like = job.declared_like(slot).backend
            only = None if group is None else KeyGroupRange(group, group)
            yield restored_copy(like, job.storage, operator, chain, key_groups=only, keep_states=job.keep_states)


def _entries(job: LocalJob, backend: KeyedStateBackend, state: str, key: Any) -> Iterator[StateEntry]:
    registered = backend.registered_states.get(state)
    if registered is None:
        raise StateDeclarationError(
            f"operator {job.spec.name!r} has no state {state!r}, it has {sorted(backend.registered_states)}",
            operator=job.spec.name,
            state=state,
        )
    descriptor = registered.descriptor
    wanted = None if key is None else job.spec.key_schema.normalise(key)
    with backend.snapshot() as snapshot:
        for group in backend.context.key_group_range:
            stored = snapshot.entries(state, group)
            if descriptor.ttl is not None:
                stored = unexpired(stored, descriptor.ttl, job.ttl_clock(job.latest))
            for of_key, namespace, content in stored:
                if wanted is None or of_key == wanted:
                    yield StateEntry(of_key, namespace, _plain(descriptor, content))


def _plain(descriptor: StateDescriptor, content: Any) -> Any:
    """What the state's handle would give."""
    if descriptor.kind == "map":
        return {user_key: _unstamped(value) for user_key, value in content.items()}
    if descriptor.kind == "list":
        return [_unstamped(element) for element in content]
    value = _unstamped(content)
    return descriptor.function.get_result(value) if isinstance(descriptor, AggregatingStateDescriptor) else value


def _unstamped(value: Any) -> Any:
    return value.value if isinstance(value, Stamped) else value
