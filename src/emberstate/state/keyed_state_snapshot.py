"""`KeyedStateSnapshot`: everything a backend held at one point in time.

A snapshot does not contain states and timer queues that were registered later. Taking one is O(1). Any thread may
read and release it; until then the backend keeps what it saw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from emberstate.errors import StateDeclarationError
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.points import PointInTime
from emberstate.state.registered_state import Entry, EntryTable, RegisteredState
from emberstate.state.timers import TimerQueue
from emberstate.state.ttl.config import TtlClock


class KeyedStateSnapshot:
    """A point in time of a backend; a context manager that releases it."""

    __slots__ = ("point", "states", "timer_queues", "ttl_clock")

    def __init__(
        self,
        point: PointInTime,
        states: Mapping[str, RegisteredState[EntryTable]],
        timer_queues: Mapping[str, TimerQueue],
        ttl_clock: TtlClock,
    ) -> None:
        self.point = point
        #: The states that were registered; the mapping never changes.
        self.states = states
        #: The timer queues that were registered; the mapping never changes.
        self.timer_queues = timer_queues
        #: Stopped at the times that expiry was judged by.
        self.ttl_clock = ttl_clock

    def entries(self, state: str, key_group: int) -> Iterator[Entry]:
        """Iterate over (key, namespace, content) of one state in one key group, as it was.

        The caller must not change the content, which may be the backend's own.
        """
        return self._table(state).entries(key_group, self.point)

    def entry_columns(self, state: str, key_group: int) -> Iterable[EntryColumns] | None:
        """The same as columns; None if the state is in no columns."""
        return self._table(state).entry_columns(key_group, self.point)

    def _table(self, state: str) -> EntryTable:
        registered = self.states.get(state)
        if registered is None:
            raise StateDeclarationError(
                f"the snapshot has no state {state!r}: it has {sorted(self.states)}", state=state
            )
        self.point.check_live()
        return registered.table

    def timers(self, queue: str, key_group: int) -> Iterator[Entry]:
        """Iterate over (key, "", {(time, name, namespace): True}) of one timer queue in one key group, as it was."""
        found = self.timer_queues.get(queue)
        if found is None:
            raise StateDeclarationError(
                f"the snapshot has no timer queue {queue!r}: it has {sorted(self.timer_queues)}", state=queue
            )
        self.point.check_live()
        return found.table.entries(key_group, self.point)

    def release(self) -> None:
        """Release the snapshot; a second call does nothing."""
        self.point.release()

    def __enter__(self) -> KeyedStateSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
