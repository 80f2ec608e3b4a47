"""`SlotPeer`: a task's handle of the slot's process, by which any task can kill it.

The kernel tells which process listens at the other end. A pidfd of that process is opened while the connection stands,
and its command line must be that of this slot. So not only the worker that started the process can kill it, and a task
never kills a process that has reused its pid.

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

#: How long to wait for a killed process, in seconds: it may be in a system call.
_END_SECONDS: Final = 10.0


class SlotPeer:
    """The process at the other end of a connection to a slot."""

    def __init__(self, connection: socket.socket, slot_id: SlotId) -> None:
        self.pid, self.uid = peer_of(connection)
        self._descriptor = -1
        with contextlib.suppress(OSError):  # it has ended, or has another pid namespace
            self._descriptor = os.pidfd_open(self.pid)
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            if [word.encode() for word in slot_id.arguments] != words[-len(slot_id.arguments) - 1 : -1]:
                self.close()

    def condition(self) -> str:
        """Its pid, and its state in the kernel, for a message."""
        state = "gone"
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
            state = next(line.partition("\t")[2] for line in lines if line.startswith("State:"))
        return f"process {self.pid}, state {state}"

    def kill(self) -> bool:
        """Kill it, which frees its name; False if this is not possible from here."""
        if self._descriptor < 0:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        select.select([self._descriptor], [], [], _END_SECONDS)
        return True

    def close(self) -> None:
        """Close the pidfd. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
