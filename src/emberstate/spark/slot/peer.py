"""`SlotPeer`: the slot's process, as a task knows it: by the kernel's word, and for good.

The kernel says who listens at the other end. A descriptor of that process (pidfd) is opened while the connection
stands, and its command line must be that of this very slot. So whoever waits for it can end it, not only the worker
that started it, and never hits a process that has got its pid since.

Thread safety: one thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from pathlib import Path
from typing import Final

from emberstate.spark.slot.address import SlotId, peer_of

#: A process that was killed is gone soon after, unless the kernel itself holds it.
_END_SECONDS: Final = 10.0


class SlotPeer:
    """The process at the other end of a connection to a slot."""

    def __init__(self, connection: socket.socket, slot_id: SlotId) -> None:
        self.pid, self.uid = peer_of(connection)
        self._descriptor = -1
        with contextlib.suppress(OSError):  # it has ended, or is in another pid namespace
            self._descriptor = os.pidfd_open(self.pid)
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            if [word.encode() for word in slot_id.arguments] != words[-len(slot_id.arguments) - 1 : -1]:
                self.close()

    def condition(self) -> str:
        """What it is, for a message: its pid, and how the kernel has it."""
        state = "gone"
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
            state = next(line.partition("\t")[2] for line in lines if line.startswith("State:"))
        return f"process {self.pid}, state {state}"

    def kill(self) -> bool:
        """End it, since it does not go on; whether that could be done. Its name is free then."""
        if self._descriptor < 0:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        select.select([self._descriptor], [], [], _END_SECONDS)
        return True

    def close(self) -> None:
        """Know it no more; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
