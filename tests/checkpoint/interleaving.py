"""Every order in which the storage calls of two processes can happen, one after the other.

Each process is a thread with a `FaultyStorage` of its own, which stops before every call that matters. A schedule
says whose call comes next; `every_interleaving` runs a world under all schedules there are.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

from emberstate.storage.interface import Storage
from emberstate.testing.faults import FaultPlan, FaultyStorage, Gate
from tests.checkpoint.threads import Thread
from tests.patience import PATIENCE

MOST_CALLS = 40


class _Stop(Gate):
    """A gate that says when it is reached."""

    def __init__(self, stops: queue.Queue[_Stop | None]) -> None:
        super().__init__()
        self._stops = stops

    def __call__(self) -> None:
        self._stops.put(self)
        super().__call__()


class Process:
    """A process that stops before each of its calls whose path matches."""

    def __init__(self, storage: Storage, path: str, work: Callable[[Storage], object]) -> None:
        self._stops: queue.Queue[_Stop | None] = queue.Queue()
        plan = FaultPlan({})
        for nth in range(1, MOST_CALLS + 1):
            plan.hold(_Stop(self._stops), path=path, nth=nth)

        def run() -> object:
            try:
                return work(FaultyStorage(storage, plan))
            finally:
                self._stops.put(None)

        self._thread = Thread(run)
        self._at = self._stops.get(timeout=PATIENCE)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._at is None

    def step(self) -> None:
        """Let it make the call it stands before, and go on to the next."""
        assert self._at is not None
        self._at.opened.set()
        self._at = self._stops.get(timeout=PATIENCE)

    def end(self, *expected: type[BaseException]) -> object:
        """The result; None if it raised what was expected."""
        return self._thread.join(*expected)


def every_interleaving(
    start: Callable[[], tuple[Process, Process]],
) -> Iterator[tuple[str, Process, Process]]:
    """Run both processes under each schedule; gives the schedule, and the processes when they are over."""
    schedule: list[tuple[int, bool]] = []  # whose call, and whether it could have been the other's
    while True:
        first, second = start()
        steps = 0
        while not (first.is_over and second.is_over):
            if steps == len(schedule):
                schedule.append((1 if first.is_over else 0, not first.is_over and not second.is_over))
            (first, second)[schedule[steps][0]].step()
            steps += 1
        yield "".join("ab"[who] for who, _ in schedule), first, second
        while schedule and schedule[-1] != (0, True):
            schedule.pop()
        if not schedule:
            return
        schedule[-1] = (1, True)
