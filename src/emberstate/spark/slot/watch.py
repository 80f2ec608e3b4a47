"""`WatchedConnection`: a task's end of its connection. Waiting ends with an error when the slot makes no progress.

Only time without progress counts, and only while the task waits for the slot: neither how long a step takes, nor the
time that the task needs to read its rows.

Thread safety: one thread, that of the Spark task.
"""

from __future__ import annotations

import array
import os
import select
import socket
from collections.abc import Callable
from typing import Any, Final, Self

from emberstate.spark.slot.peer import SlotPeer
from emberstate.spark.slot.progress import read_progress

#: How often progress is checked.
_LOOK_MILLIS: Final = 250
_DESCRIPTOR: Final = array.array("i", [0])


class StalledError(Exception):
    """The slot made no progress for too long. Never leaves this package.

    `progress` is how far it is, `calls` the stack of its code, innermost first.
    """

    def __init__(self, progress: str, calls: str) -> None:
        super().__init__(progress)
        self.progress = progress
        self.calls = calls

    def __str__(self) -> str:
        """What the slot was doing, for a message."""
        if not self.progress:
            return "it has not answered"
        return self.progress + (f", in {self.calls}" if self.calls else "")


class WatchedConnection:
    """A connection to a slot, with the part of a socket that frames and rows need."""

    def __init__(self, connection: socket.socket, peer: SlotPeer, limit: float, clock: Callable[[], float]) -> None:
        """`limit` is how long, in seconds by `clock`, the slot may make no progress."""
        self.peer = peer
        self._connection = connection
        self._limit = limit
        self._clock = clock
        self._page = -1  # comes with the slot's first frame

    def fileno(self) -> int:
        """For poll."""
        return self._connection.fileno()

    def sendall(self, data: Any) -> None:
        """Send all data."""
        memory = memoryview(data).cast("B")
        while memory:
            try:
                memory = memory[self._connection.send(memory, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._wait(select.POLLOUT)

    def recv_into(self, memory: memoryview) -> int:
        """Receive at least one byte; 0 at the end."""
        while True:
            try:
                if self._page >= 0:
                    return self._connection.recv_into(memory, 0, socket.MSG_DONTWAIT)
                return self._receive_first(memory)
            except BlockingIOError:
                self._wait(select.POLLIN)

    def _receive_first(self, memory: memoryview) -> int:
        room = socket.CMSG_SPACE(_DESCRIPTOR.itemsize)
        flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
        count, ancillary, _, _ = self._connection.recvmsg_into([memory], room, flags)
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._page = array.array("i", content[: _DESCRIPTOR.itemsize])[0]
        return count

    def _wait(self, event: int) -> None:
        poll = select.poll()
        poll.register(self._connection, event)
        since, seen = self._clock(), self._progress()
        while not poll.poll(_LOOK_MILLIS):
            now, found = self._clock(), self._progress()
            if found[0] != seen[0]:
                since, seen = now, found
            elif now - since >= self._limit:
                raise StalledError(*found)

    def _progress(self) -> tuple[str, str]:
        return ("", "") if self._page < 0 else read_progress(self._page)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()
        self.peer.close()
        if self._page >= 0:
            os.close(self._page)
            self._page = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
