"""What a job of the checkpoint tests computes: one `Work` for each of its operators.

`counting` has the small one that most tests use, `profiles` one with states of every kind and an oracle, and `States`
here is for tests that bring their own states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.files.bindings import bindings_of
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend

Content = dict[Any, Any]
Output = tuple[str, int, bytes]


class Work:
    """One operator: its states, and what a batch does to them in one slot."""

    name = "op"
    keys = KeySchema.from_python(str)
    groups = 8
    #: Number of slots; None: the job's.
    parallelism: int | None = None
    #: Further arguments of its `OperatorSpec`.
    spec_options: dict[str, Any] = {}  # noqa: RUF012

    def declare(self, backend: KeyedStateBackend) -> None:
        """Register the states."""
        raise NotImplementedError

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[Any]) -> list[Output]:
        """Run the rows of a batch whose keys the backend owns."""
        raise NotImplementedError

    def content(self, backend: Any) -> Content:
        """What can be seen in a backend, at the time of its `ttl_clock`."""
        raise NotImplementedError

    def rows(self, batch: int) -> Sequence[Any]:
        """The rows of a batch, where a test gives none: always the same."""
        raise NotImplementedError

    def time(self, batch: int) -> int | None:
        """Processing time and watermark of a batch; None: real time, and no watermark."""
        return None

    def after(self, model: Content, batch: int, rows: Sequence[Any]) -> Content:
        """The model: what `content` is after a batch, given what it was before."""
        return model

    def owns(self, backend: KeyedStateBackend, key: Any) -> bool:
        """Whether a key is in the backend's key groups."""
        return self.keys.key_group(key, self.groups) in backend.context.key_group_range


class States(Work):
    """Given states, and a timer queue "event". A row is a key and a function of the backend, as `put` makes."""

    def __init__(
        self, *states: StateDescriptor, key: Any = str, groups: int = 16, namespace_type: Any = str, **options: Any
    ) -> None:
        self.keys = KeySchema.from_python(key)
        self.groups = groups
        self.states = states
        self.namespace_type = namespace_type
        template = HeapKeyedStateBackend(self.keys, max_parallelism=groups)
        self.declare(template)
        self.spec_options = {"declared": bindings_of(template), **options}

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
