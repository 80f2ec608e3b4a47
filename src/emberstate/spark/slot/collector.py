"""`SlotCollector`: runs the cyclic garbage collector of a slot's process.

A full collection visits every object that can be in a cycle: with a million mutable values that is a second's
pause, in the middle of a row. So automatic full collections are off. Between transactions the young generations are
collected. When the slot is idle, and periodically if it never is, everything is collected, and the survivors are
frozen: they are not visited again. Restored objects are frozen at once.

Thread safety: the owner's thread, while no user code runs.
"""

from __future__ import annotations

import gc
import time
from typing import Final

#: A threshold that no count reaches.
_NEVER: Final = 2**31 - 1
#: Transactions after which everything is collected though the slot was never idle.
_FULL_AFTER: Final = 1000


class SlotCollector:
    """Owns the garbage collector of this process."""

    def __init__(self) -> None:
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _NEVER)
        gc.freeze()  # modules and what they hold
        self._transactions = 0
        self._micros = 0

    def after_restore(self) -> None:
        """Freeze what was restored."""
        gc.freeze()

    def after_transaction(self) -> None:
        """Collect young objects, or everything after many transactions."""
        self._transactions += 1
        self._collect(2 if self._transactions >= _FULL_AFTER else 1)

    def when_idle(self) -> None:
        """Collect everything, if there was a transaction since the last time."""
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
        """The time spent since the last call, in microseconds."""
        micros, self._micros = self._micros, 0
        return micros
