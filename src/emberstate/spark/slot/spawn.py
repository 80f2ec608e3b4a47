"""Starts a slot's process.

The name of a slot's socket is the lock: the worker that binds it starts the process and passes it the socket. The
process itself listens once it is up, so the kernel knows it as the socket's peer; other workers retry until then. If
the worker dies before there is a process, or the process dies, the name is free, and the next worker binds it.

The process stays in the process group of pyspark's daemon; Spark kills the group.

Thread safety: one thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import Final

from emberstate.errors import SlotError
from emberstate.spark.slot.address import Executor, SlotId
from emberstate.spark.slot.messages import SlotSetup

_log = logging.getLogger("emberstate.spark")

_SIGNALS: Final[dict[int, str]] = {
    signal.SIGKILL: "SIGKILL (by the kernel if memory ran out, unless somebody sent it)",
    signal.SIGSEGV: "SIGSEGV (a crash in compiled code)",
    signal.SIGABRT: "SIGABRT (a crash in compiled code)",
}


class SpawnedSlot:
    """A slot's process that this worker has started."""

    def __init__(self, process: subprocess.Popen[bytes], printed: int) -> None:
        self._process = process
        self._printed = printed

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    def kill(self) -> None:
        """Kill it."""
        self._process.kill()

    def fate(self, patience: float) -> str:
        """How it ended, and what it printed before it listened, for a message."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        code = self._process.poll()
        if code is None:
            how = "is still running"
        elif code < 0:
            how = f"was ended by {_SIGNALS.get(-code, f'signal {-code}')}"
        else:
            how = f"ended with exit status {code}"
        printed = "" if self._printed < 0 else os.pread(self._printed, 1 << 16, 0).decode(errors="replace").strip()
        return f"process {self.pid} {how}" + (f"; it printed:\n{printed}" if printed else "")

    def close(self) -> None:
        """Drop what it printed."""
        if self._printed >= 0:
            os.close(self._printed)
            self._printed = -1

    @property
    def ended(self) -> bool:
        """Whether it has ended; reaps it."""
        return self._process.poll() is not None


def spawn(slot_id: SlotId, address: bytes, executor: Executor, incarnation: int) -> SpawnedSlot | None:
    """Start the process of a slot; None if another worker has, or is about to.

    Raises:
        SlotError: the process cannot be started.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        printed, log = os.memfd_create("emberstate-slot-start"), os.dup(2)
        try:
            setup = SlotSetup(
                name=str(slot_id),
                token=slot_id.token,
                incarnation=incarnation,
                idle_seconds=slot_id.idle_seconds,
                stuck_seconds=slot_id.stuck_seconds,
                path=sys.path,
                python_path=os.environ.get("PYTHONPATH"),
                watched=[executor.process, executor.daemon],
                listener=listener.fileno(),
                log=log,
            )
            process = _started(slot_id, setup, printed)
        except BaseException:
            os.close(printed)
            raise
        finally:
            os.close(log)
    return SpawnedSlot(process, printed)


def _started(slot_id: SlotId, setup: SlotSetup, printed: int) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *slot_id.arguments],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            pass_fds=(setup.listener, setup.log),
        )
    except OSError as error:
        raise SlotError(f"{slot_id}: cannot start its process with {sys.executable}: {error}") from error
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it has ended, as the next connect will show
        pipe.write(setup.to_bytes())
    return process
