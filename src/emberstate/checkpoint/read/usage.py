"""How large the states of a checkpoint are: by state, by key group, and the largest keys.

Sizes are those of the live encoded bytes: key, namespace, user keys and values of every entry. Files are smaller, since
they are compressed, or larger, since they hold superseded rows.

Thread safety: one thread at a time, as the reader.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from emberstate.checkpoint.read.entries import Entry
from emberstate.checkpoint.read.reader import CheckpointReader


@dataclasses.dataclass(slots=True)
class Usage:
    """An amount of state."""

    #: (key, namespace) pairs, and the values, elements, user keys or timers that they hold.
    entries: int = 0
    cells: int = 0
    bytes: int = 0

    def add(self, other: Usage) -> None:
        """Add another amount."""
        self.entries += other.entries
        self.cells += other.cells
        self.bytes += other.bytes

    @staticmethod
    def of(entry: Entry) -> Usage:
        """Return the amount of one entry."""
        size = len(entry.key) + len(entry.namespace)
        size += sum(len(cell.user_key or b"") + len(cell.value or b"") for cell in entry.cells)
        return Usage(1, len(entry.cells), size)


@dataclasses.dataclass(frozen=True, slots=True)
class KeyUsage:
    """The state of a key in one state, all namespaces together."""

    state: str
    key: Any
    key_group: int
    usage: Usage


@dataclasses.dataclass(frozen=True, slots=True)
class StateUsage:
    """The sizes of some states of an operator."""

    states: dict[str, Usage]
    #: By key group, then by state; without empty key groups.
    key_groups: dict[int, dict[str, Usage]]
    #: The largest keys, largest first.
    keys: list[KeyUsage]

    def of_group(self, group: int) -> Usage:
        """Return the amount of all states in a key group."""
        total = Usage()
        for usage in self.key_groups.get(group, {}).values():
            total.add(usage)
        return total

    def total(self) -> Usage:
        """Return the amount of all states."""
        total = Usage()
        for usage in self.states.values():
            total.add(usage)
        return total


def state_usage(
    reader: CheckpointReader,
    operator: str,
    states: Iterable[str],
    largest: int = 0,
    progress: Callable[[int], None] | None = None,
    key_groups: Iterable[int] | None = None,
) -> StateUsage:
    """Measure the states of an operator, or some of its key groups, and find the `largest` keys.

    Reads everything once per state. `progress` gets the number of key groups read, for each state.
    """
    found = StateUsage({}, {}, [])
    top: list[tuple[int, int, KeyUsage]] = []
    order = itertools.count()
    wanted = None if key_groups is None else list(key_groups)
    for state in states:
        table = reader.table(operator, state)
        total = found.states[state] = Usage()
        for groups, entries in reader.scan(operator, table, wanted):
            for group, key, usage in _by_key(entries):
                total.add(usage)
                found.key_groups.setdefault(group, {}).setdefault(state, Usage()).add(usage)
                if largest and (len(top) < largest or usage.bytes > top[0][0]):
                    named = KeyUsage(state, table.key(key), group, usage)
                    push = heapq.heappush if len(top) < largest else heapq.heappushpop
                    push(top, (usage.bytes, -next(order), named))
            if progress is not None:
                progress(len(groups))
    found.keys.extend(named for *_, named in sorted(top, reverse=True, key=lambda item: item[:2]))
    return found


def key_usages(
    reader: CheckpointReader,
    operator: str,
    state: str,
    key_groups: Iterable[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[KeyUsage]:
    """Yield the keys that have a state, each once, by key group: of some key groups, or of all. Reads as it goes on."""
    table = reader.table(operator, state)
    for groups, entries in reader.scan(operator, table, key_groups):
        for group, key, usage in _by_key(entries):
            yield KeyUsage(state, table.key(key), group, usage)
        if progress is not None:
            progress(len(groups))


def _by_key(entries: Iterable[Entry]) -> Iterator[tuple[int, Entry, Usage]]:
    """Yield (key group, an entry, amount) for every key; entries are in order of keys."""
    for (group, _), of_key in itertools.groupby(entries, key=lambda entry: (entry.key_group, entry.key)):
        usage, last = Usage(), None
        for last in of_key:
            usage.add(Usage.of(last))
        assert last is not None
        yield group, last, usage
