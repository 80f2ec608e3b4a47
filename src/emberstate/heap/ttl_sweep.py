"""Sweeps over the states of a heap backend that remove what has expired; see `state.ttl.clean_up`.

A sweep walks over the state maps with an `IncrementalVisitor`, so rows, growth and roll-backs may come between two
steps. Each step looks at a few buckets. An expired value is removed; so are the expired user values of a map, one by
one, and a map or list with its last one. What stays keeps its stamp.

A large map is walked in steps of its own. So is a long list: the survivors are collected on the way and replace the
list at the end, if at least half of it has expired. Until then the expired part stays, invisible: writing a list anew
for every element that expires would cost its whole length each time, in memory and in the commit. Elements that can
change are collected all at once at the end, because a value that was handed in may be replaced by a copy between two
steps. A list that was rolled back meanwhile is left to the next pass.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.states.kinds import RecordKind
from emberstate.heap.states.list_value import AppendList, ListKind, append_list_over
from emberstate.heap.states.map_value import PLAIN, MapKind
from emberstate.heap.states.state_table import StateTable
from emberstate.state.ttl.clean_up import Sweep, SweptPart, TtlSweep
from emberstate.state.ttl.config import TtlClock, TtlConfig

if TYPE_CHECKING:
    from emberstate.heap.columns.column_table import ColumnTable

#: Buckets of a map looked at per step.
BUCKETS = 32
#: Elements of a list looked at per step; a list up to this length is cleaned even if less than half has expired.
ELEMENTS = 64
#: Rows of a column table looked at per step, and how many of them count as one value: each costs a few nanoseconds.
ROWS = 8192
ROWS_PER_VALUE = 64


class HeapTtlSweep(TtlSweep):
    """Makes the sweeps of one backend."""

    __slots__ = ("_roll_backs",)

    def __init__(self, clock: TtlClock, registry: SnapshotRegistry) -> None:
        super().__init__(clock)
        self._roll_backs = 0
        registry.listeners.append(self)

    def after_roll_back(self, snapshot: SnapshotPoint) -> None:
        """Note that what a walk remembers of a list may have been rolled back."""
        self._roll_backs += 1

    def sweep(self, table: StateTable, ttl: TtlConfig) -> Sweep:
        """Walk over all key groups of one state; the walk ends at once while its time is not known."""
        if isinstance(table.kind, RecordKind):
            yield from self._records(cast("ColumnTable", table), ttl)
            return
        for _, map in table.used_maps():
            visitor = map.visitor(BUCKETS)
            while (horizon := self._horizon(ttl)) is not None and (entries := visitor.next_entries()) is not None:
                if not isinstance(table.kind, ListKind | MapKind):
                    expired = [entry for entry in entries if entry[2].stamp <= horizon]
                    for key, namespace, _ in expired:
                        map.remove(key, namespace)
                    yield SweptPart(1 + len(entries), len(expired))
                    continue
                looked_at = 1
                removed = 0
                walks: list[Sweep] = []
                for key, namespace, state in entries:
                    if isinstance(state, tuple):
                        looked_at += len(state) // 2
                        removed += _tidy_small(map, key, namespace, state, horizon)
                    elif isinstance(state, CopyOnWriteStateMap):
                        walks.append(self._large(map, key, namespace, state, ttl))
                    elif state.length <= ELEMENTS:
                        looked_at += state.length
                        removed += _tidy_list(map, key, namespace, state, horizon)
                    else:
                        walks.append(self._long(table, map, key, namespace, state, ttl))
                yield SweptPart(looked_at, removed)
                for walk in walks:
                    yield from walk

    def _records(self, table: ColumnTable, ttl: TtlConfig) -> Sweep:
        """Walk over the rows of a column table."""
        first = 0
        while (horizon := self._horizon(ttl)) is not None and first < len(table.store.alive):
            expired = table.expired_rows(first, first + ROWS, horizon)
            yield SweptPart(1 + ROWS // ROWS_PER_VALUE, table.remove_rows(expired))
            first += ROWS

    def _large(self, map: StateMap, key: Any, namespace: Any, large: CopyOnWriteStateMap, ttl: TtlConfig) -> Sweep:
        """Walk over a large map, for as long as it is the entry's."""
        visitor = large.visitor(BUCKETS)
        while map.peek(key, namespace) is large and (entries := visitor.next_entries()) is not None:
            horizon = self._horizon(ttl)
            expired = [] if horizon is None else [pair[0] for pair in entries if pair[2].stamp <= horizon]
            if expired:
                map.get(key, namespace)  # for change: notes that the entry changes
                for user_key in expired:
                    large.remove(user_key, PLAIN)
                if len(large) == 0:
                    map.remove(key, namespace)
            yield SweptPart(1 + len(entries), len(expired))

    def _long(
        self, table: StateTable, map: StateMap, key: Any, namespace: Any, header: AppendList, ttl: TtlConfig
    ) -> Sweep:
        """Walk over a long list, for as long as it is the entry's and only appended to."""
        items, length, roll_backs = header.items, header.length, self._roll_backs
        living: list[Any] = []
        position = 0
        while True:
            state = map.peek(key, namespace)
            horizon = self._horizon(ttl)
            if state is None or state.items is not items or roll_backs != self._roll_backs or horizon is None:
                return
            part = items[position : min(length, position + ELEMENTS)]
            living += [element for element in part if element.stamp > horizon]
            position += len(part)
            if position == length:
                break
            yield SweptPart(len(part), 0)
        expired = length - len(living)
        if 2 * expired < length:
            expired = 0
        elif table.kind.lends:
            expired = _tidy_list(map, key, namespace, state, horizon)
        else:
            living += items[length : state.length]
            _set_list(map, key, namespace, append_list_over(living))
        yield SweptPart(1 + len(part), expired)


def _tidy_small(map: StateMap, key: Any, namespace: Any, small: tuple[Any, ...], horizon: int) -> int:
    """Remove the expired pairs of a small map; returns how many there were."""
    living: list[Any] = []
    for position in range(0, len(small), 2):
        if small[position + 1].stamp > horizon:
            living += small[position : position + 2]
    if not living:
        map.remove(key, namespace)
    elif len(living) < len(small):
        map.put(key, namespace, tuple(living))
    return (len(small) - len(living)) // 2


def _tidy_list(map: StateMap, key: Any, namespace: Any, header: AppendList, horizon: int) -> int:
    """Remove the expired elements of a list; returns how many there were."""
    living = [element for element in header.elements() if element.stamp > horizon]
    expired = header.length - len(living)
    if expired:
        _set_list(map, key, namespace, append_list_over(living))
    return expired


def _set_list(map: StateMap, key: Any, namespace: Any, header: AppendList) -> None:
    if header.length:
        map.put(key, namespace, header)
    else:
        map.remove(key, namespace)
