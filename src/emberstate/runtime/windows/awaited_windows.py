"""`AwaitedWindows`: the windows whose timers this copy of a function has set, so that it does not set them again.

A window gets the same timer from each of its rows. Asking the queue each time costs more than counting the row does.

Invariant: a window that is here has its timer. It leaves with the timer; a roll-back, which may take timers away, makes
a new copy of the function. What was forgotten is asked for once more.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from emberstate.runtime.functions.context import FunctionContext

#: More than these are forgotten together.
_KEPT: Final = 100_000


class AwaitedWindows:
    """Windows, or slices, of all keys."""

    __slots__ = ("_context", "_known")

    def __init__(self, context: FunctionContext) -> None:
        self._context = context
        self._known: set[tuple[Hashable, Hashable]] = set()

    def add(self, window: Hashable) -> bool:
        """Take in a window of the current key; False if it was here already."""
        pair = (self._context.key, window)
        known = self._known
        if pair in known:
            return False
        if len(known) >= _KEPT:
            known.clear()
        known.add(pair)
        return True

    def discard(self, window: Hashable) -> None:
        """Take out a window of the current key."""
        self._known.discard((self._context.key, window))
