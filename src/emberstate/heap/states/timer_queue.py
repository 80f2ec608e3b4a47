"""`HeapTimerQueue`: the set of timers is ordinary copy-on-write state; the order is an index beside it.

The set: per key a map (`map_value`) from (time, name, namespace) to True, in a `StateTable`. So timers are
snapshotted, rolled back and listed as changes like any state, at the cost of what was touched.

The index: a sorted list of the same timers, in firing order (`timer_index`). It is exact, so no operation has leftovers
of earlier ones to clear: registering, deleting and polling each change one short block.

The journal: what entered and left the index while a snapshot lives. A roll-back undoes the lines younger than its
snapshot. If a newer snapshot lives as well, on what is then a side branch, the undoing is journalled too.

Invariants: the index holds the timers of the set, each once. Undoing the journal from its end down to the version
of a live snapshot gives the timers of that snapshot; versions in it ascend.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from emberstate.codec import Codec
from emberstate.errors import InvariantError
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.snapshots import SnapshotPoint
from emberstate.heap.states.map_state import HeapMapState
from emberstate.heap.states.state_table import StateTable
from emberstate.heap.states.timer_index import TimerIndex
from emberstate.state.timers import VOID_NAMESPACE, Timer, TimerQueue

#: Outdated lines of the journal dropped per operation: more than are added, and never many at once.
DROPPED_PER_OPERATION = 8

# time, key, name, rank of the namespace, namespace, key group: compares in firing order
_Indexed = tuple[int, Any, str, Any, Any, int]


class HeapTimerQueue(TimerQueue):
    """Timers over a state table, with namespaces of one type."""

    __slots__ = ("_index", "_journal", "_set")

    table: StateTable

    def __init__(self, table: StateTable, namespace_codec: Codec[Any]) -> None:
        super().__init__(table, namespace_codec, str)
        self._set = HeapMapState(table, VOID_NAMESPACE)
        self._index = TimerIndex()
        self._journal: deque[tuple[int, _Indexed, bool]] = deque()  # version, timer, whether it entered or left
        table.registry.listeners.append(self)

    # -- the current key ------------------------------------------------------------------------------------

    def register(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""
        timer = self._checked(time, name, namespace)
        if self._set.contains(timer):
            return False
        indexed = self._indexed(timer, self.table.context.key, self.table.context.key_group)
        self._set.put(timer, True)
        self._index.add(indexed)
        self._note(indexed, True)
        self._registered += 1
        return True

    def delete(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""
        timer = self._checked(time, name, namespace)
        if not self._set.remove(timer):
            return False
        indexed = self._indexed(timer, self.table.context.key, self.table.context.key_group)
        self._index.remove(indexed)
        self._note(indexed, False)
        self._deleted += 1
        return True

    # -- all keys -------------------------------------------------------------------------------------------

    def peek(self) -> Timer | None:
        """The timer that fires next, or None."""
        self.table.context.check_open()
        first = self._index.first()
        if first is None:
            return None
        time, key, name, _, namespace, _ = first
        return Timer(time, key, name, namespace)

    def poll(self, until: int) -> Timer | None:
        """Remove and return the next timer if its time is at most `until`; its key becomes current."""
        self.table.context.check_open()
        indexed = self._index.first()
        if indexed is None or indexed[0] > until:
            return None
        time, key, name, _, namespace, group = indexed
        self.table.context.set_current_key_and_group(key, group)
        self._set.remove((time, name, namespace))
        self._index.pop_first()
        self._note(indexed, False)
        self._fired += 1
        return Timer(time, key, name, namespace)

    def timers_of_group(self, key_group: int) -> Iterator[Timer]:
        """The timers of one owned key group, in no order."""
        self.table.context.check_open()
        map = self.table.map_of(key_group)
        return iter(()) if map is None else self._timers_in(map)

    def __len__(self) -> int:
        self.table.context.check_open()
        return len(self._index)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if set and order disagree. O(timers)."""
        self.table.check_invariants()
        self._index.check_invariants()
        expected = set(self._of_set())
        queue = self.table.name
        if differing := sorted(expected ^ set(self._index)):
            where = "the index: it would not fire" if differing[0] in expected else "the set: it would fire"
            raise InvariantError(f"{differing[0]!r} of queue {queue!r} is not in {where}", state=queue)
        versions = [version for version, _, _ in self._journal]
        if versions != sorted(versions):
            raise InvariantError(f"the journal of queue {queue!r} is not in order: {versions}", state=queue)

    # -- points in time -------------------------------------------------------------------------------------

    def after_roll_back(self, snapshot: SnapshotPoint) -> None:
        """Reset the index to `snapshot`, at the cost of what was touched since."""
        undone: list[tuple[int, _Indexed, bool]] = []
        while self._journal and self._journal[-1][0] >= snapshot.version:
            undone.append(self._journal.pop())
        then: dict[_Indexed, bool] = {}
        now: dict[_Indexed, bool] = {}
        for _, indexed, came in undone:  # from the newest to the oldest
            now.setdefault(indexed, came)
            then[indexed] = not came
        back = [indexed for indexed, there in then.items() if there and not now[indexed]]
        gone = [indexed for indexed, there in then.items() if now[indexed] and not there]
        for indexed in gone:
            self._index.remove(indexed)
        for indexed in back:
            self._index.add(indexed)
        registry = self.table.registry
        if registry.live[-1].version > snapshot.version:  # a side branch: a later roll-back may go forward again
            self._journal.extend(reversed(undone))
            self._journal.extend((registry.version, indexed, True) for indexed in back)
            self._journal.extend((registry.version, indexed, False) for indexed in gone)

    def after_load(self) -> None:
        """Build the index of a set that a loader has filled; there is no snapshot yet."""
        self._index = TimerIndex(self._of_set())

    # -- inside ---------------------------------------------------------------------------------------------

    def _of_current_key(self) -> tuple[Any, Iterable[tuple[int, str, Any]]]:
        return self.table.context.key, self._set.keys() or ()

    def _journal_lines(self) -> int:
        return len(self._journal)

    def _timers_in(self, map: StateMap) -> Iterator[Timer]:
        for key, _, timers in map:
            for time, name, namespace in timers:
                yield Timer(time, key, name, namespace)

    def _indexed(self, timer: tuple[int, str, Any], key: Any, group: int) -> _Indexed:
        time, name, namespace = timer
        return time, key, name, self._rank(namespace), namespace, group

    def _note(self, indexed: _Indexed, came: bool) -> None:
        """Journal what entered or left the index, as long as a roll-back could need it."""
        journal = self._journal
        oldest = self.table.registry.live[:1]  # a copy: another thread may release a snapshot
        if oldest:
            journal.append((self.table.registry.version, indexed, came))
        elif not journal:
            return
        for _ in range(DROPPED_PER_OPERATION):
            if not journal or (oldest and journal[0][0] >= oldest[0].version):
                return
            journal.popleft()

    def _of_set(self) -> Iterator[_Indexed]:
        for group, map in self.table.used_maps():
            for key, _, timers in map:
                for timer in timers:
                    yield self._indexed(timer, key, group)
