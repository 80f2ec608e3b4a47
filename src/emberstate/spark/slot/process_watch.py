"""The processes that a slot must not outlive: identified by pid and start time, since pids are reused, and
watched by pidfd.

Linux only, as pidfds are.

Thread safety: one thread, that of the poll.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec


class ProcessId(msgspec.Struct, frozen=True):
    """The identity of a process; `started` is in clock ticks since the machine started."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this pid now; None if there is none.

        >>> ProcessId.of(os.getpid()) == ProcessId.of(os.getpid())
        True
        """
        fields = _stat(pid)
        return None if fields is None else cls(pid, int(fields[19]))


def parent_of(pid: int) -> int:
    """The pid of a process's parent; 0 if it has none that can be seen.

    >>> parent_of(os.getpid()) == os.getppid()
    True
    """
    fields = _stat(pid)
    return 0 if fields is None else int(fields[1])


def _stat(pid: int) -> list[str] | None:
    """The fields after the name, which may contain spaces and brackets; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


class ProcessWatch:
    """Processes, and a file descriptor for each that becomes readable when it ends."""

    def __init__(self, processes: Iterable[ProcessId]) -> None:
        #: Processes that had ended before they could be watched.
        self.gone: list[ProcessId] = []
        self._watched: dict[int, ProcessId] = {}
        for process in processes:
            try:
                descriptor = os.pidfd_open(process.pid)
            except ProcessLookupError:
                self.gone.append(process)
                continue
            if ProcessId.of(process.pid) == process:
                self._watched[descriptor] = process
            else:  # the pid was reused
                os.close(descriptor)
                self.gone.append(process)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to poll for input."""
        return tuple(self._watched)

    def ended(self, descriptor: int) -> ProcessId | None:
        """The process of a readable descriptor; None if it is not one of these."""
        return self._watched.get(descriptor)

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in self._watched:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._watched.clear()
