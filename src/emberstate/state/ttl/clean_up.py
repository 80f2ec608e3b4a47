"""Removes expired content that nobody reads, a little at a time; shared by all backends.

A backend makes one sweep per state with time to live: an iterator that looks at a bounded part of the state with
every step and removes what has expired there, by ordinary changes, which a commit writes and a roll-back undoes.
`TtlCleanUp` goes through the sweeps, pass after pass, and stops when the caller's budget is spent.

The operator calls it at the end of a transaction, when all rows and timers have been handled. So what a transaction
sees does not depend on the position of the clean-up: a rerun from the same snapshot reads the same, also of states
that show what has expired until it is cleaned up. The position is not rolled back; a rerun resumes where the failed
attempt stopped.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from emberstate.errors import StateDeclarationError
from emberstate.state.ttl.config import TtlClock, TtlConfig


class SweptPart(NamedTuple):
    """Result of one step of a sweep."""

    looked_at: int  # at least 1, so that an empty sweep ends too
    removed: int


#: One walk over all content of one state.
Sweep = Iterator[SweptPart]


class TtlSweep(abc.ABC):
    """Makes the sweeps of one backend."""

    __slots__ = ("_clock",)

    def __init__(self, clock: TtlClock) -> None:
        self._clock = clock

    @abc.abstractmethod
    def sweep(self, table: Any, ttl: TtlConfig) -> Sweep:
        """Walk over all content of one state; the walk ends at once while its time is not known."""

    def _horizon(self, ttl: TtlConfig) -> int | None:
        """Content stamped at or before this time has expired; None while the time is not known."""
        now = self._clock.reading(ttl.time)
        return None if now is None else now - ttl.micros


@dataclasses.dataclass(frozen=True, slots=True)
class TtlCleanUpStatistics:
    """Counters of the clean-up; they include attempts that were rolled back."""

    looked_at: int
    removed: int  # values, elements of lists and user values of maps
    passes: int  # finished walks over all states


class TtlCleanUp:
    """The clean-up of one backend: its progress and its counters.

    >>> clean_up = TtlCleanUp(lambda: [iter([SweptPart(10, 3), SweptPart(10, 0)]), iter([SweptPart(10, 1)])])
    >>> clean_up.run(15), clean_up.run(15)
    (3, 4)
    >>> clean_up.statistics()
    TtlCleanUpStatistics(looked_at=40, removed=7, passes=1)
    """

    __slots__ = ("_looked_at", "_passes", "_removed", "_sweeps", "_walk")

    def __init__(self, sweeps: Callable[[], Iterable[Sweep]]) -> None:
        """`sweeps` returns the sweeps of a new pass."""
        self._sweeps = sweeps
        self._walk: Iterator[SweptPart] | None = None
        self._looked_at = 0
        self._removed = 0
        self._passes = 0

    def run(self, budget: int) -> int:
        """Look at about `budget` values, or at all of them once; returns how many were removed."""
        if budget < 1:
            what = f"clean_up() failed: expected a budget of at least 1, got {budget!r}"
            raise StateDeclarationError(what, option="budget", expected=1, found=budget)
        looked_at = removed = 0
        whole = False
        while looked_at < budget:
            if self._walk is None:
                self._walk = itertools.chain.from_iterable(self._sweeps())
                whole = True
            part = next(self._walk, None)
            if part is None:
                self._walk = None
                self._passes += 1
                if whole:
                    break  # this call has looked at everything
                continue
            looked_at += part.looked_at
            removed += part.removed
        self._looked_at += looked_at
        self._removed += removed
        return removed

    def statistics(self) -> TtlCleanUpStatistics:
        """Return the counters."""
        return TtlCleanUpStatistics(self._looked_at, self._removed, self._passes)
