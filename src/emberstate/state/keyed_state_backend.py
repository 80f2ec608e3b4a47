"""What a backend of keyed state is to those above it, checkpoints and functions: the heap's and RocksDB's are such.

That they do the same is what the conformance suite says (`tests/state/conformance_*.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol

from emberstate.codec import Codec
from emberstate.state.changes import EntryChange
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.key_context import KeyContext
from emberstate.state.timers import VOID_NAMESPACE, TimerQueue, TimerQueueStatistics
from emberstate.state.ttl.clean_up import TtlCleanUpStatistics
from emberstate.state.ttl.config import TtlClock


class DeclaredState(Protocol):
    """A registered state."""

    @property
    def descriptor(self) -> StateDescriptor:
        """What was declared."""

    @property
    def namespace_codec(self) -> Codec[Any]:
        """How namespaces are encoded."""


class BackendStatistics(Protocol):
    """What every backend can say of itself; each says more in its own words."""

    @property
    def entries(self) -> int:
        """How many (key, namespace) entries all states have."""

    @property
    def live_snapshots(self) -> int:
        """How many snapshots have not been released."""

    @property
    def timers(self) -> tuple[TimerQueueStatistics, ...]:
        """A part per timer queue."""

    @property
    def clean_up(self) -> TtlCleanUpStatistics:
        """What was removed because it had expired."""


class KeyedStateSnapshot(Protocol):
    """Everything a backend held at one point in time; read and released by any thread."""

    #: The times that expiry was judged by when it was taken.
    ttl_clock: TtlClock

    @property
    def states(self) -> Mapping[str, DeclaredState]:
        """The states that were registered."""

    @property
    def timer_queues(self) -> Mapping[str, TimerQueue]:
        """The timer queues that were there."""

    def entries(self, state: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """(key, namespace, content) of one state in one key group: a value, a list, or a dict of user keys."""

    def timers(self, queue: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """(key, "", {(time, name, namespace): True}) of one timer queue in one key group."""

    def release(self) -> None:
        """Give the snapshot up; a second call does nothing."""

    def __enter__(self) -> KeyedStateSnapshot: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class KeyedStateBackend(Protocol):
    """The keyed state of a range of key groups; a `snapshot` that is given must be one of its own."""

    context: KeyContext
    ttl_clock: TtlClock

    @property
    def current_key(self) -> Any:
        """The current key, or None."""

    def set_current_key(self, key: Any) -> None:
        """Make `key` the one that states are about."""

    @property
    def registered_states(self) -> Mapping[str, DeclaredState]:
        """The states by name, as they are now."""

    @property
    def timer_queues(self) -> Mapping[str, TimerQueue]:
        """The timer queues by name, as they are now."""

    def get_partitioned_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """A handle on a state, bound to `namespace`; a state is registered when it is first asked for."""

    def get_internal_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """The same without the wrapper for users."""

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Any]:
        """The keys that have state `name` in `namespace`; nothing if no such state is registered."""

    def apply_to_all_keys(
        self,
        descriptor: StateDescriptor,
        function: Callable[[Any, Any], None],
        namespace: Hashable = VOID_NAMESPACE,
        *,
        namespace_type: Any = str,
    ) -> None:
        """Call `function(key, state)` for every key that has the state, with that key as the current one."""

    def number_of_entries(self) -> int:
        """How many (key, namespace) entries all states have."""

    def get_timer_queue(self, name: str, *, namespace_type: Any = str) -> TimerQueue:
        """The timer queue of that name, made when it is first asked for."""

    def snapshot(self) -> KeyedStateSnapshot:
        """Take a snapshot of everything: O(1)."""

    def changes(self, snapshot: Any) -> list[tuple[str, int, EntryChange]]:
        """(state, key group, record) for every entry that differs from `snapshot`."""

    def timer_changes(self, snapshot: Any) -> list[tuple[str, int, EntryChange]]:
        """(queue, key group, record) for every key whose timers differ from `snapshot`."""

    def roll_back(self, snapshot: Any) -> None:
        """Put everything back to what `snapshot` saw."""

    def keep_state(self, descriptor: StateDescriptor, namespace_codec: Codec[Any]) -> None:
        """Hold a state that the program does not declare, as bytes."""

    def keep_timer_queue(self, name: str, namespace_codec: Codec[Any]) -> None:
        """Hold a timer queue that the program does not declare."""

    def check_unused(self) -> None:
        """Refuse to be filled from files unless nothing was ever written to it or saw it."""

    def after_load(self) -> None:
        """Take over what was loaded from files."""

    def clean_up(self, budget: int) -> int:
        """Remove some of what has expired, looking at about `budget` values; how many were removed."""

    def statistics(self) -> BackendStatistics:
        """What the backend holds."""

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken."""

    def close(self) -> None:
        """Drop all state; a second call does nothing."""
