"""`HeapSnapshot`: everything a `HeapKeyedStateBackend` held at one point in time.

Taking one is O(1). What was registered later, and key groups first written to later, are not in it. Any
thread may read and release it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from emberstate.codec import Codec
from emberstate.errors import StateDeclarationError
from emberstate.heap.map.snapshots import Snapshot
from emberstate.heap.states.state_table import StateTable
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.ttl.config import TtlClock

if TYPE_CHECKING:
    from emberstate.heap.states.timer_queue import HeapTimerQueue


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredState:
    """A state as the backend knows it."""

    descriptor: StateDescriptor
    namespace_codec: Codec[Any]
    table: StateTable


class HeapSnapshot:
    """A point in time of a backend; a context manager that releases it."""

    __slots__ = ("_queues", "_states", "point", "ttl_clock")

    def __init__(
        self,
        point: Snapshot,
        states: Mapping[str, RegisteredState],
        queues: Mapping[str, HeapTimerQueue],
        ttl_clock: TtlClock,
    ) -> None:
        #: The point in time of the backend's registry.
        self.point = point
        #: The times that expiry was judged by when it was taken.
        self.ttl_clock = ttl_clock
        self._states = states
        self._queues = queues

    @property
    def states(self) -> Mapping[str, RegisteredState]:
        """The states that were registered."""
        return self._states

    @property
    def timer_queues(self) -> Mapping[str, HeapTimerQueue]:
        """The timer queues that were there."""
        return self._queues

    def entries(self, state: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, content) of one state in one key group, as it was.

        Content is a view: a value, a list of elements, or a dict of user keys; with time to live, `Stamped`.
        """
        registered = self._states.get(state)
        if registered is None:
            raise StateDeclarationError(f"no state {state!r} in this snapshot: it has {sorted(self._states)}")
        return self._read(registered.table, key_group)

    def timers(self, queue: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, "", {(time, name, namespace).

        True}) of one timer queue in one key group, as it was.
        """
        if queue not in self._queues:
            raise StateDeclarationError(
                f"no timer queue {queue!r} in this snapshot: it has {sorted(self._queues)}"
            )
        return self._read(self._queues[queue].table, key_group)

    def release(self) -> None:
        """Give the snapshot up, from any thread; a second call does nothing."""
        self.point.release()

    def __enter__(self) -> HeapSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _read(self, table: StateTable, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        self.point.check_live()
        map = table.map_of(key_group)
        return iter(()) if map is None else iter(map.open(self.point))
