"""The progress of a slot: a page of shared memory that its tasks can read however busy or stuck the slot is.

The page holds two texts: how far the slot is, and the stack of its code. The first changes if and only if there is
progress (rows, timers, bytes of state), so a task that waits compares it with what it was. The accept thread writes it
periodically. A stopped process, or a call that never returns, changes nothing.

Thread safety: one thread writes, any process reads; a text that is read while it is written differs from the last.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

_SIZE: Final = 4096
_LONGEST: Final = 1000
#: Calls of the stack to show, innermost first.
_CALLS: Final = 4


class ProgressPage:
    """The slot's side. `progress` returns how far it is; `owner` is the thread whose stack is shown."""

    def __init__(self, progress: Callable[[], str]) -> None:
        self._progress = progress
        self._last = ""
        self.owner: int | None = None
        #: The file descriptor that tasks read.
        self.descriptor = os.memfd_create("emberstate-slot-progress")

    def update(self) -> None:
        """Write how far the slot is; without progress since the last call, also its stack."""
        progress = self._progress()
        calls = _calls_of(self.owner) if progress == self._last else ""
        self._last = progress
        text = b"\0".join(part.encode(errors="replace")[:_LONGEST] for part in (progress, calls))
        os.pwrite(self.descriptor, text.ljust(_SIZE, b"\0"), 0)


def read_progress(descriptor: int) -> tuple[str, str]:
    """How far a slot is, and its stack if known; both empty before the first update."""
    progress, calls, *_ = (os.pread(descriptor, _SIZE, 0) + b"\0\0").split(b"\0")
    return progress.decode(errors="replace"), calls.decode(errors="replace")


def _calls_of(thread: int | None) -> str:
    frame = None if thread is None else sys._current_frames().get(thread)
    calls: list[str] = []
    while frame is not None and len(calls) < _CALLS:
        calls.append(f"{frame.f_code.co_name} ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(calls)
