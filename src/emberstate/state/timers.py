"""Timers as a kind of state: the timer, and the interface of a backend's timer queue.

A timer belongs to a key and has a name, a time and a namespace; registering it twice makes one timer.
Timers of one queue fire in one order everywhere: by time, then key, name and namespace.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from emberstate.codec import Codec
from emberstate.errors import LifecycleError, StateTypeError
from emberstate.state.registered_state import EntryTable

#: The namespace of state outside windows.
VOID_NAMESPACE = ""


class Timer(NamedTuple):
    """A timer of one key; `time` in microseconds."""

    time: int
    key: Any
    name: str
    namespace: Hashable = VOID_NAMESPACE


@dataclasses.dataclass(frozen=True, slots=True)
class TimerQueueStatistics:
    """Contents and counters of a timer queue."""

    name: str
    timers: int
    registered: int
    deleted: int
    fired: int
    journal: int  # lines kept for roll-backs


class TimerQueue(abc.ABC):
    """The timers of all owned key groups, as a set and in order of time; registered by current key."""

    __slots__ = ("_deleted", "_fired", "_rank", "_registered", "namespace_codec", "table")

    #: The timers by key: {(time, name, namespace): True} in the void namespace.
    table: EntryTable

    def __init__(self, table: EntryTable, namespace_codec: Codec[Any], text_rank: Callable[[str], Any]) -> None:
        """Make a queue over a table.

        Args:
            table: The timers by key.
            namespace_codec: How the namespaces of timers are encoded.
            text_rank: What a namespace of text is ordered by. All others are ordered by their bytes, which always
                compare.
        """
        self.table = table
        self.namespace_codec = namespace_codec
        self._rank: Callable[[Any], Any] = text_rank if namespace_codec.type is str else namespace_codec.encode
        self._registered = 0
        self._deleted = 0
        self._fired = 0

    @abc.abstractmethod
    def register(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Register a timer of the current key; False if it was there already."""

    @abc.abstractmethod
    def delete(self, time: int, name: str, namespace: Hashable = VOID_NAMESPACE) -> bool:
        """Delete a timer of the current key; False if it was not there."""

    def timers_of_current_key(self) -> list[Timer]:
        """The timers of the current key, in firing order."""
        key, timers = self._of_current_key()
        rank = self._rank
        ordered = sorted(timers, key=lambda timer: (timer[0], timer[1], rank(timer[2])))
        return [Timer(time, key, name, namespace) for time, name, namespace in ordered]

    @abc.abstractmethod
    def peek(self) -> Timer | None:
        """The timer that fires next, or None."""

    @abc.abstractmethod
    def poll(self, until: int) -> Timer | None:
        """Remove and return the next timer if its time is at most `until`; its key becomes current."""

    @abc.abstractmethod
    def timers_of_group(self, key_group: int) -> Iterator[Timer]:
        """The timers of one owned key group, in no order."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def statistics(self) -> TimerQueueStatistics:
        """Return contents and counters of the queue, at the cost of `len`."""
        return TimerQueueStatistics(
            name=self.table.name,
            timers=len(self),
            registered=self._registered,
            deleted=self._deleted,
            fired=self._fired,
            journal=self._journal_lines(),
        )

    @abc.abstractmethod
    def check_invariants(self) -> None:
        """Raise `InvariantError` if set and order disagree. O(timers)."""

    @abc.abstractmethod
    def _of_current_key(self) -> tuple[Any, Iterable[tuple[int, str, Any]]]:
        """Return the current key and its timers as the table holds them, in no order."""

    def _journal_lines(self) -> int:
        """Return how many lines are kept for roll-backs."""
        return 0

    def _checked(self, time: int, name: str, namespace: Hashable) -> tuple[int, str, Hashable]:
        """Return the timer as the table holds it; rejects wrong types, so that 1, 1.0 and True are never one time."""
        if type(time) is not int or not -(2**63) <= time < 2**63:
            raise StateTypeError(
                f"time of timer {name!r} must be an int64 of microseconds, got {time!r}", state=self.table.name
            )
        if type(name) is not str or not name:
            raise StateTypeError(
                f"a timer needs a name, got {name!r}: it tells timers of one key apart", state=self.table.name
            )
        if type(namespace) is not self.namespace_codec.type or type(namespace) is not str:
            try:
                self.namespace_codec.check_deep(namespace)
            except StateTypeError as error:
                queue = self.table.name
                found = error.reworded(f"namespace of a timer in queue {queue!r}: {error}")
                raise found.located(state=queue) from None
        return time, name, namespace

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            "a timer queue cannot be pickled or copied: it belongs to the backend of one process. Was it caught in "
            "a closure that Spark sends elsewhere? Ask for it where it is used.",
            option="__reduce__",
        )
