"""`RocksDBSnapshot`: everything a `RocksDBKeyedStateBackend` held at one point in time.

Taking one is O(1). What was registered later is not in it. Any thread may read and release it; while it is
live RocksDB keeps what it saw.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from emberstate.codec import Codec
from emberstate.errors import StateDeclarationError
from emberstate.rocksdb.rocksdb_state_table import RocksDBStateTable
from emberstate.rocksdb.rocksdb_store import Point
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.ttl.config import TtlClock

if TYPE_CHECKING:
    from emberstate.rocksdb.rocksdb_timer_queue import RocksDBTimerQueue


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredState:
    """A state as the backend knows it."""

    descriptor: StateDescriptor
    namespace_codec: Codec[Any]
    table: RocksDBStateTable


class RocksDBSnapshot:
    """A point in time of a backend; a context manager that releases it."""

    __slots__ = ("_queues", "_states", "point", "ttl_clock")

    def __init__(
        self,
        point: Point,
        states: Mapping[str, RegisteredState],
        queues: Mapping[str, RocksDBTimerQueue],
        ttl_clock: TtlClock,
    ) -> None:
        #: The point in time of the backend's store.
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
    def timer_queues(self) -> Mapping[str, RocksDBTimerQueue]:
        """The timer queues that were there."""
        return self._queues

    def entries(self, state: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, content) of one state in one key group, as it was.

        Content is a value, a list of elements, or a dict of user keys; with time to live, `Stamped`.
        """
        registered = self._states.get(state)
        if registered is None:
            raise StateDeclarationError(f"no state {state!r} in this snapshot: it has {sorted(self._states)}")
        self.point.check_live()
        return registered.table.entries(key_group, self.point)

    def timers(self, queue: str, key_group: int) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, "", {(time, name, namespace): True}) of one timer queue in one key group, as it was."""
        if queue not in self._queues:
            raise StateDeclarationError(
                f"no timer queue {queue!r} in this snapshot: it has {sorted(self._queues)}"
            )
        self.point.check_live()
        return self._queues[queue].table.entries(key_group, self.point)

    def release(self) -> None:
        """Give the snapshot up, from any thread; a second call does nothing."""
        self.point.release()

    def __enter__(self) -> RocksDBSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
