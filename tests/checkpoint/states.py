"""Work with states that a test gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.files.bindings import bindings_of
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.clock import ManualClock
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from tests.checkpoint.driver import SHORT_CHAINS, Job
from tests.checkpoint.work import Output, Work

GROUPS = 16


class States(Work):
    """Given states, and a timer queue "event". A row is a key and a function of the backend, as `put` makes."""

    def __init__(
        self,
        *states: StateDescriptor,
        key: Any = str,
        groups: int = GROUPS,
        namespace_type: Any = str,
        choices: RestoreChoices = NO_CHOICES,
    ) -> None:
        self.keys = KeySchema.from_python(key)
        self.groups = groups
        self.states = states
        self.namespace_type = namespace_type
        template = HeapKeyedStateBackend(self.keys, max_parallelism=groups)
        self.declare(template)
        self.spec_options = {"declared": bindings_of(template), "choices": choices}

    def declare(self, backend: KeyedStateBackend) -> None:
        void = "" if self.namespace_type is str else (0, 0)
        for state in self.states:
            backend.get_partitioned_state(state, void, namespace_type=self.namespace_type)
        backend.get_timer_queue("event")

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[Any]) -> list[Output]:
        for key, change in rows:
            if self.owns(backend, key):
                backend.set_current_key(key)
                change(backend)
        return []


def states_job(
    storage: Storage,
    *states: StateDescriptor,
    key: Any = str,
    groups: int = GROUPS,
    namespace_type: Any = str,
    choices: RestoreChoices = NO_CHOICES,
    **options: Any,
) -> Job:
    """A job with given states, open."""
    work = States(*states, key=key, groups=groups, namespace_type=namespace_type, choices=choices)
    defaults = {"parallelism": 2, "inline_bytes": 200, "retained": 2, "policy": SHORT_CHAINS, "steady": True}
    job = Job(storage, work, **{**defaults, "clock": ManualClock(1_000_000), **options})
    job.open()
    return job


def put(state: StateDescriptor, value: Any, namespace: Any = None) -> Callable[[KeyedStateBackend], None]:
    """Give a state of the current key this content."""

    def change(backend: KeyedStateBackend) -> None:
        kind = str if namespace is None or isinstance(namespace, str) else tuple[int, int]
        handle = backend.get_partitioned_state(state, "" if namespace is None else namespace, namespace_type=kind)
        if state.kind == "map":
            handle.clear()
            handle.put_all(value)
        elif state.kind in ("value", "list"):
            handle.update(value)
        else:
            handle.add(value)

    return change
