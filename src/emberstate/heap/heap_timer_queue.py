"""`HeapTimerQueue`: the set of timers is ordinary copy-on-write state; the order is an index derived from it.

The set: per key a map (`map_value`) from (time, name, namespace) to True, in a `StateTable`. So timers are snapshotted,
rolled back and listed in "what changed" like everything else, at the cost of what was touched.

The index: a binary heap of candidates. A candidate counts only if the set has its timer; a deleted timer stays in the
index until its time comes or the index is made anew. What `poll` takes out is remembered while a snapshot lives that could
bring it back: a roll-back puts it in again.

Invariants: every timer of the set is in the index, at least once; `_polled` ascends by version.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

from emberstate.errors import InvariantError, StateTypeError
from emberstate.heap.heap_map_state import HeapMapState
from emberstate.heap.snapshots import Snapshot
from emberstate.heap.state_table import StateTable
from emberstate.state.timers import VOID_NAMESPACE, Timer, TimerQueue, TimerQueueStatistics

#: Deleted timers in the index that are always tolerated; beyond, as many as there are others.
STALE_TOLERATED = 1_000

# time, key, name, type of the namespace, namespace, key group: compares in firing order
_Candidate = tuple[int, Any, str, str, Any, int]


class HeapTimerQueue(TimerQueue):
    """Timers over a state table."""

    __slots__ = ("_deleted", "_fired", "_index", "_polled", "_rebuilds", "_registered", "_set", "_stale", "table")

    def __init__(self, table: StateTable) -> None:
        self.table = table
        self._set = HeapMapState(table, VOID_NAMESPACE)
        self._index: list[_Candidate] = []
        self._polled: deque[tuple[int, _Candidate]] = deque()
        self._stale = 0
        self._registered = 0
        self._deleted = 0
        self._fired = 0
        self._rebuilds = 0
        table.registry.listeners.append(self)

    def register(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""
        if type(time) is not int or not -(2**63) <= time < 2**63:
            raise StateTypeError(f"the time of timer {name!r} must be an int of microseconds, found {time!r}")
        timer = (time, name, namespace)
        if self._set.contains(timer):
            return False
        self._set.put(timer, True)
        context = self.table.context
        heapq.heappush(self._index, (time, context.key, name, type(namespace).__name__, namespace, context.key_group))
        self._registered += 1
        return True

    def delete(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""
        if not self._set.remove((time, name, namespace)):
            return False
        self._deleted += 1
        self._stale += 1
        if self._stale > STALE_TOLERATED and self._stale * 2 > len(self._index):
            self._rebuild()
        return True

    def timers_of_current_key(self) -> list[Timer]:
        """The timers of the current key, in firing order."""
        key = self.table.context.key
        timers = [Timer(time, key, name, namespace) for (time, name, namespace), _ in self._set.items() or ()]
        return sorted(timers, key=lambda timer: (timer.time, timer.name, type(timer.namespace).__name__, timer.namespace))

    def peek(self) -> Timer | None:
        """The timer that fires next, or None."""
        self._drop_stale()
        if not self._index:
            return None
        time, key, name, _, namespace, _ = self._index[0]
        return Timer(time, key, name, namespace)

    def poll(self, until: int) -> Timer | None:
        """Remove the next timer if its time is at most `until`, make its key the current one, and return it."""
        self._drop_stale()
        if not self._index or self._index[0][0] > until:
            return None
        candidate = heapq.heappop(self._index)
        time, key, name, _, namespace, group = candidate
        self.table.context.set_current_key_and_group(key, group)
        self._set.remove((time, name, namespace))
        self._remember(candidate)
        self._fired += 1
        return Timer(time, key, name, namespace)

    def timers_of_group(self, key_group: int) -> Iterator[Timer]:
        """The timers of one owned key group, in no order."""
        map = self.table.map_of(key_group)
        if map is not None:
            for key, _, timers in map:
                for time, name, namespace in timers:
                    yield Timer(time, key, name, namespace)

    def after_roll_back(self, snapshot: Snapshot) -> None:
        """Put back into the index what was polled since `snapshot`; the set says which of it counts."""
        while self._polled and self._polled[-1][0] >= snapshot.version:
            heapq.heappush(self._index, self._polled.pop()[1])

    def __len__(self) -> int:
        return sum(len(timers) for _, _, timers in self.table)

    def statistics(self) -> TimerQueueStatistics:
        """What the queue holds and has done."""
        return TimerQueueStatistics(
            name=self.table.name,
            timers=len(self),
            index_size=len(self._index),
            registered=self._registered,
            deleted=self._deleted,
            fired=self._fired,
            index_rebuilds=self._rebuilds,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if set and order disagree. O(timers)."""
        self.table.check_invariants()
        indexed = {(time, key, name, namespace) for time, key, name, _, namespace, _ in self._index}
        for group, _ in self.table.used_maps():
            for timer in self.timers_of_group(group):
                if timer not in indexed:
                    raise InvariantError(f"{timer!r} of queue {self.table.name!r} is not in the index: it would not fire")
        versions = [version for version, _ in self._polled]
        if versions != sorted(versions):
            raise InvariantError(f"polled timers of queue {self.table.name!r} are not in order of version: {versions}")

    def _counts(self, candidate: _Candidate) -> bool:
        time, key, name, _, namespace, group = candidate
        map = self.table.map_of(group)
        timers = None if map is None else map.peek(key, VOID_NAMESPACE)
        return timers is not None and self._set.kind.holds(timers, (time, name, namespace))

    def _drop_stale(self) -> None:
        while self._index and not self._counts(self._index[0]):
            self._remember(heapq.heappop(self._index))
            self._stale = max(0, self._stale - 1)

    def _remember(self, candidate: _Candidate) -> None:
        """Keep what leaves the index for as long as a roll-back could bring its timer back."""
        live = self.table.registry.live
        if live:
            self._polled.append((self.table.registry.version, candidate))
            oldest = live[0].version
            while self._polled[0][0] < oldest:
                self._polled.popleft()
        else:
            self._polled.clear()

    def _rebuild(self) -> None:
        """Make the index anew from the set. A roll-back may bring timers back that were deleted: they stay in."""
        living: list[_Candidate] = []
        for group, _ in self.table.used_maps():
            for time, key, name, namespace in self.timers_of_group(group):
                living.append((time, key, name, type(namespace).__name__, namespace, group))
        if self.table.registry.live:
            counted = {candidate[:5] for candidate in living}
            for candidate in self._index:
                if candidate[:5] not in counted:
                    self._remember(candidate)
        heapq.heapify(living)
        self._index = living
        self._stale = 0
        self._rebuilds += 1
