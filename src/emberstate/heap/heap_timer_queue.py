"""`HeapTimerQueue`: the set of timers is ordinary copy-on-write state; the order is an index derived from it.

The set: per key a map (`map_value`) from (time, name, namespace) to True, in a `StateTable`. So timers are
snapshotted, rolled back and listed in "what changed" like everything else, at the cost of what was touched.

The index: a binary heap of candidates. A candidate counts only if the set has its timer. One whose timer was
deleted or rolled back stays, stale, until its time comes or until most of the index is stale and it is made
anew. What leaves the index is remembered while a snapshot lives that could bring its timer back: a roll-back
puts it in again.

Invariants: every timer of the set is in the index, at least once; every timer of a live snapshot is there or
in `_left`, which ascends by version.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Any

from emberstate.codec import Codec
from emberstate.errors import InvariantError, SnapshotReleasedError, StateTypeError
from emberstate.heap.heap_map_state import HeapMapState
from emberstate.heap.snapshots import Snapshot
from emberstate.heap.state_table import StateTable
from emberstate.state.timers import VOID_NAMESPACE, Timer, TimerQueue, TimerQueueStatistics

#: Stale candidates that are always tolerated; beyond, as many as there are others.
STALE_TOLERATED = 1_000

# time, key, name, rank of the namespace, namespace, key group: compares in firing order
_Candidate = tuple[int, Any, str, Any, Any, int]


class HeapTimerQueue(TimerQueue):
    """Timers over a state table, with namespaces of one type."""

    __slots__ = (
        "_deleted",
        "_fired",
        "_index",
        "_left",
        "_rank",
        "_rebuilds",
        "_registered",
        "_registered_at",
        "_set",
        "_stale",
        "namespace_codec",
        "table",
    )

    def __init__(self, table: StateTable, namespace_codec: Codec[Any]) -> None:
        self.table = table
        self.namespace_codec = namespace_codec
        # What namespaces are ordered by: a string by itself, all else by its bytes, which always compare.
        self._rank: Callable[[Any], Any] = str if namespace_codec.type is str else namespace_codec.encode
        self._set = HeapMapState(table, VOID_NAMESPACE)
        self._index: list[_Candidate] = []
        self._left: deque[tuple[int, _Candidate]] = deque()  # version, what left the index then
        self._registered_at: dict[int, int] = {}  # version → how many timers were registered at it
        self._stale = 0
        self._registered = 0
        self._deleted = 0
        self._fired = 0
        self._rebuilds = 0
        table.registry.listeners.append(self)

    # -- the current key ------------------------------------------------------------------------------------

    def register(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""
        timer = self._checked(time, name, namespace)
        if self._set.contains(timer):
            return False
        candidate = self._candidate(timer, self.table.context.key, self.table.context.key_group)
        self._set.put(timer, True)
        heapq.heappush(self._index, candidate)
        self._count_registration()
        return True

    def delete(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""
        if not self._set.remove(self._checked(time, name, namespace)):
            return False
        self._deleted += 1
        self._grow_stale(1)
        return True

    def timers_of_current_key(self) -> list[Timer]:
        """The timers of the current key, in firing order."""
        key = self.table.context.key
        rank = self._rank
        timers = sorted(self._set.keys() or (), key=lambda timer: (timer[0], timer[1], rank(timer[2])))
        return [Timer(time, key, name, namespace) for time, name, namespace in timers]

    # -- all keys -------------------------------------------------------------------------------------------

    def peek(self) -> Timer | None:
        """The timer that fires next, or None."""
        self._drop_stale()
        if not self._index:
            return None
        time, key, name, _, namespace, _ = self._index[0]
        return Timer(time, key, name, namespace)

    def poll(self, until: int) -> Timer | None:
        """Remove and return the next timer if its time is at most `until`; its key becomes current."""
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

    def __len__(self) -> int:
        return sum(len(timers) for _, _, timers in self.table)

    def statistics(self) -> TimerQueueStatistics:
        """What the queue holds and has done; O(timers)."""
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
                    raise InvariantError(
                        f"{timer!r} of queue {self.table.name!r} is not in the index: it would not fire"
                    )
        for position, candidate in enumerate(self._index[1:], 1):
            if candidate < self._index[(position - 1) // 2]:
                raise InvariantError(f"{candidate!r} of queue {self.table.name!r} is behind a later timer")
        versions = [version for version, _ in self._left]
        if versions != sorted(versions):
            raise InvariantError(f"what left queue {self.table.name!r} is not in order: {versions}")

    # -- points in time -------------------------------------------------------------------------------------

    def after_roll_back(self, snapshot: Snapshot) -> None:
        """Put back what left the index since `snapshot` and is in the set again; the rest others may need."""
        others = len(self.table.registry.live) > 1
        returned = []
        while self._left and self._left[-1][0] >= snapshot.version:
            returned.append(self._left.pop()[1])
        for candidate in returned:
            if self._counts(candidate):
                heapq.heappush(self._index, candidate)
            elif others:
                self._left.append((self.table.registry.version, candidate))
        gone = [version for version in self._registered_at if version >= snapshot.version]
        self._grow_stale(sum(self._registered_at.pop(version) for version in gone))

    # -- inside ---------------------------------------------------------------------------------------------

    def _checked(self, time: int, name: str, namespace: Hashable) -> tuple[int, str, Hashable]:
        """The timer as the set holds it, if it can be one: 1, 1.0 and True are never one time."""
        if type(time) is not int or not -(2**63) <= time < 2**63:
            raise StateTypeError(f"time of timer {name!r} must be an int64 of microseconds, found {time!r}")
        if type(name) is not str or not name:
            raise StateTypeError(f"a timer needs a name, found {name!r}: it tells timers of one key apart")
        if type(namespace) is not self.namespace_codec.type or type(namespace) is not str:
            try:
                self.namespace_codec.check_deep(namespace)
            except StateTypeError as error:
                raise StateTypeError(f"namespace of a timer in queue {self.table.name!r}: {error}") from None
        return time, name, namespace

    def _candidate(self, timer: tuple[int, str, Any], key: Any, group: int) -> _Candidate:
        time, name, namespace = timer
        return time, key, name, self._rank(namespace), namespace, group

    def _counts(self, candidate: _Candidate) -> bool:
        time, key, name, _, namespace, group = candidate
        map = self.table.map_of(group)
        timers = None if map is None else map.peek(key, VOID_NAMESPACE)
        return timers is not None and self._set.kind.holds(timers, (time, name, namespace))

    def _drop_stale(self) -> None:
        self.table.context.check_open()
        while self._index and not self._counts(self._index[0]):
            self._remember(heapq.heappop(self._index))
            self._stale = max(0, self._stale - 1)

    def _remember(self, candidate: _Candidate) -> None:
        """Keep what leaves the index for as long as a roll-back could bring its timer back."""
        oldest = self._oldest_live()
        if oldest is None:
            self._left.clear()
            return
        self._left.append((self.table.registry.version, candidate))
        while self._left[0][0] < oldest:
            self._left.popleft()

    def _count_registration(self) -> None:
        """Count by version what a roll-back would make stale."""
        self._registered += 1
        version = self.table.registry.version
        count = self._registered_at.get(version)
        if count is None:
            count = 0
            oldest = self._oldest_live() or version
            for old in [old for old in self._registered_at if old < oldest]:
                del self._registered_at[old]
        self._registered_at[version] = count + 1

    def _oldest_live(self) -> int | None:
        """The version of the oldest live snapshot, or None; another thread may be releasing it."""
        oldest = self.table.registry.live[:1]
        return oldest[0].version if oldest else None

    def _grow_stale(self, by: int) -> None:
        """Note that candidates became stale; make the index anew if most of it is."""
        self._stale += by
        if self._stale > STALE_TOLERATED and self._stale * 2 > len(self._index) + len(self._left):
            self._rebuild()

    def _rebuild(self) -> None:
        """Make the index anew from the set, and what is remembered from the sets of the live snapshots."""
        living = set(self._candidates(None))
        remembered: set[_Candidate] = set()
        for snapshot in list(self.table.registry.live):
            try:
                remembered.update(self._candidates(snapshot))
            except SnapshotReleasedError:  # by another thread, just now
                continue
        version = self.table.registry.version
        self._left = deque((version, candidate) for candidate in remembered - living)
        self._index = sorted(living)  # a sorted list is a heap
        self._stale = 0
        self._rebuilds += 1

    def _candidates(self, snapshot: Snapshot | None) -> Iterator[_Candidate]:
        """A candidate for every timer of the set, as it is (None) or as a snapshot saw it."""
        for group, map in self.table.used_maps():
            for key, _, timers in map if snapshot is None else map.open(snapshot):
                for timer in timers:
                    yield self._candidate(timer, key, group)
