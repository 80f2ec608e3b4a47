"""`SlotCollector`: when the cyclic garbage collector runs in a slot's process.

A full collection visits every object that can be in a cycle: with a million mutable values that is a second's
pause, in the middle of a row. So there are none by themselves. Between transactions the young generations are
collected; when the slot is idle, and now and then if it never is, all of it, and what survives is frozen: it is not
visited again. What was restored is frozen at once.

Thread safety: the owner's thread, while no user code runs.
"""

from __future__ import annotations

import gc
import time
from typing import Final

#: A threshold that is never reached.
_NEVER: Final = 2**31 - 1
#: After so many transactions everything is collected, though the slot was never idle.
_FULL_AFTER: Final = 1000


class SlotCollector:
    """Takes over the collector of this process."""

    def __init__(self) -> None:
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        gc.freeze()  # modules and what they hold
        self._transactions = 0
        self._micros = 0

    def after_restore(self) -> None:
        """What was restored lives long."""
        gc.freeze()

    def after_transaction(self) -> None:
        """Collect what is young, and everything if it has not been for long."""
        self._transactions += 1
        self._collect(2 if self._transactions >= _FULL_AFTER else 1)

    def when_idle(self) -> None:
        """Collect everything, if anything has happened since the last time."""
        if self._transactions:
            self._collect(2)

    def _collect(self, generation: int) -> None:
        start = time.perf_counter_ns()
        gc.collect(generation)
        if generation == 2:
            gc.freeze()
            self._transactions = 0
        self._micros += (time.perf_counter_ns() - start) // 1000

    def take_micros(self) -> int:
        """The time spent since this was asked last."""
        micros, self._micros = self._micros, 0
        return micros
