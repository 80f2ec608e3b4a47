"""What a slot says of itself while it works: a page of memory that its tasks read, however busy or stuck it is.

The page holds a text of how far the slot has got, and one of where its code stands. The first changes if and only if
there is progress: rows, timers, bytes of state; so whoever waits compares it with what it was. It is written now and
then by a thread that is not the owner's. A process that is stopped, or a call that never returns, changes nothing.

Thread safety: one thread writes, any process reads; a text that is read while it is written is one that differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

_SIZE: Final = 4096
_LONGEST: Final = 1000
#: So many calls of the stack are told, the innermost first.
_CALLS: Final = 4


class ProgressPage:
    """The slot's side. `progress` says how far it has got, `owner` is the thread whose code is looked at."""

    def __init__(self, progress: Callable[[], str]) -> None:
        self._progress = progress
        self._last = ""
        self.owner: int | None = None
        #: What a task gets to read it by.
        self.descriptor = os.memfd_create("emberstate-slot-progress")

    def update(self) -> None:
        """Write how far it has got; if that is where it was, also what it is at."""
        progress = self._progress()
        calls = _calls_of(self.owner) if progress == self._last else ""
        self._last = progress
        text = b"\0".join(part.encode(errors="replace")[:_LONGEST] for part in (progress, calls))
        os.pwrite(self.descriptor, text.ljust(_SIZE, b"\0"), 0)


def read_progress(descriptor: int) -> tuple[str, str]:
    """How far a slot has got, and where its code stands if that is known; both empty if it has said nothing yet."""
    progress, calls, *_ = (os.pread(descriptor, _SIZE, 0) + b"\0\0").split(b"\0")
    return progress.decode(errors="replace"), calls.decode(errors="replace")


def _calls_of(thread: int | None) -> str:
    frame = None if thread is None else sys._current_frames().get(thread)
    calls: list[str] = []
    while frame is not None and len(calls) < _CALLS:
        calls.append(f"{frame.f_code.co_name} ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(calls)
