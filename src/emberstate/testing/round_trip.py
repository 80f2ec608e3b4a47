"""The round trip after every transaction of a harness: restores what was committed, and compares.

A checkpoint's files are restored into a backend of its own, and every entry of both is encoded: the bytes must be
the same, for every key group of the slot, whatever the transaction touched. So a value that does not survive its
codec, or a change that the delta missed, fails the test that made it.

Both sides judge expiry by the same times, so what has expired is in neither.

Thread safety: the owner's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from emberstate.checkpoint.files.bindings import StateBinding, bindings_of
from emberstate.checkpoint.manifest.model import Operator, SlotChain
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.operators import past_choices_of
from emberstate.codec import OpaqueCodec
from emberstate.errors import InvariantError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.ttl.filter import unexpired
from emberstate.state.ttl.stamped import Stamped
from emberstate.storage.interface import Storage


def check_round_trip(
    hot: KeyedStateBackend, storage: Storage, operator: Operator, slot: int, keep_states: Sequence[str] = ()
) -> None:
    """Raise `InvariantError` unless the stored state of a slot is what `hot` holds."""
    chain = operator.slots[slot]
    restored = restored_copy(hot, storage, operator, chain, keep_states=keep_states)
    try:
        with hot.snapshot() as now, restored.snapshot() as then:
            held, stored = _entries(hot, now), _entries(restored, then)
        differing = [place for place in held.keys() | stored.keys() if _differ(held.get(place), stored.get(place))]
        if differing:
            label, key, namespace = place = min(differing, key=repr)
            raise InvariantError(
                f"operator {operator.name!r}, slot {slot}: what is stored is not what the slot holds; {label}, key "
                f"{key!r:.200}, namespace {namespace!r:.100}: held is {_shown(held, place)}, stored is "
                f"{_shown(stored, place)}. This is a bug in Emberstate, not in the function.",
                operator=operator.name,
                slot=slot,
                key=key,
            )
    finally:
        restored.close()


def restored_copy(
    like: KeyedStateBackend,
    storage: Storage,
    operator: Operator,
    chain: SlotChain,
    *,
    key_groups: KeyGroupRange | None = None,
    keep_states: Sequence[str] = (),
) -> HeapKeyedStateBackend:
    """A backend with the states of `like`, filled with key groups (default: all) of a slot from its files."""
    context = like.context
    backend = HeapKeyedStateBackend(
        context.key_schema, max_parallelism=context.max_parallelism, key_group_range=key_groups or chain.key_groups
    )
    for state in like.registered_states.values():
        if not isinstance(state.namespace_codec, OpaqueCodec):  # else the restore makes it, from keep_states
            # Registered by codec: no handle is needed, which would ask for a namespace.
            backend.keep_state(state.descriptor, state.namespace_codec)
    for name, queue in like.timer_queues.items():
        if not isinstance(queue.namespace_codec, OpaqueCodec):
            backend.keep_timer_queue(name, queue.namespace_codec)
    backend.ttl_clock.processing_time = like.ttl_clock.processing_time
    backend.ttl_clock.event_time = like.ttl_clock.event_time
    parts = [FileSlice(open_state_file(storage, file), file.key_groups, file.decisions) for file in chain.files]
    restore(parts, backend, RestoreChoices(keep_states=keep_states), past_choices=past_choices_of(operator))
    return backend


class _Entry(NamedTuple):
    """An entry as it is, and as bytes."""

    content: Any
    image: Any


_Place = tuple[str, Any, Any]  # state or queue, key, namespace


def _entries(backend: KeyedStateBackend, snapshot: KeyedStateSnapshot) -> dict[_Place, _Entry]:
    """Return the entries of a snapshot, without expired ones."""
    found: dict[_Place, _Entry] = {}
    for binding in bindings_of(backend, snapshot):
        read = snapshot.timers if binding.codec is None else snapshot.entries
        for group in backend.context.key_group_range:
            entries = read(binding.stored.name, group)
            if binding.ttl is not None:
                entries = unexpired(entries, binding.ttl, snapshot.ttl_clock)
            for key, namespace, content in entries:
                found[binding.label, key, namespace] = _Entry(content, _image(binding, content))
    return found


def _image(binding: StateBinding, content: Any) -> Any:
    if binding.user_key_codec is not None:
        return {binding.user_key_codec.encode(key): _value(binding, value) for key, value in content.items()}
    if binding.stored.kind == "list":
        return [_value(binding, element) for element in content]
    return _value(binding, content)


def _value(binding: StateBinding, value: Any) -> Any:
    if binding.codec is None or value is None:  # a timer is nothing but its key; a map may hold None
        return value
    if isinstance(value, Stamped):
        return None if value.value is None else binding.codec.encode(value.value), value.stamp
    return binding.codec.encode(value)


def _differ(held: _Entry | None, stored: _Entry | None) -> bool:
    return held is None or stored is None or bool(held.image != stored.image)


def _shown(side: dict[_Place, _Entry], place: _Place) -> str:
    return f"{side[place].content!r:.500}" if place in side else "nothing"
