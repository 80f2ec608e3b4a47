"""Starting a slot's process.

The name of a slot's socket is the lock: whoever binds it starts the process and hands the socket down to it. It is the
process that listens, when it is up: so the kernel knows the slot by the socket, and others try until then. If the
starter dies before there is a process, or the process dies, the name is free again, and the next one binds it.

The process stays in the process group of pyspark's daemon, which Spark kills with it.

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
    signal.SIGKILL: "SIGKILL (by the kernel, if nobody else did it: then memory ran out)",
    signal.SIGSEGV: "SIGSEGV (a crash in compiled code)",
    signal.SIGABRT: "SIGABRT (a crash in compiled code)",
}


class SpawnedSlot:
    """A process that was started here."""

    def __init__(self, process: subprocess.Popen[bytes], printed: int) -> None:
        self._process = process
        self._printed = printed

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    def kill(self) -> None:
        """End it, since it does not answer."""
        self._process.kill()

    def fate(self, patience: float) -> str:
        """How it ended, and what it printed before it listened; for a message."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        code = self._process.poll()
        if code is None:
            how = "still runs"
        elif code < 0:
            how = f"was ended by {_SIGNALS.get(-code, f'signal {-code}')}"
        else:
            how = f"ended with exit status {code}"
        printed = "" if self._printed < 0 else os.pread(self._printed, 1 << 16, 0).decode(errors="replace").strip()
        return f"process {self.pid} {how}" + (f"; it printed:\n{printed}" if printed else "")

    def close(self) -> None:
        """Forget about what it printed."""
        if self._printed >= 0:
            os.close(self._printed)
            self._printed = -1

    @property
    def ended(self) -> bool:
        """Whether it has ended; then it is no zombie any more."""
        return self._process.poll() is not None


def spawn(slot_id: SlotId, address: bytes, executor: Executor, incarnation: int) -> SpawnedSlot | None:
    """Start the process of a slot; None if somebody else has, or is about to.

    Raises:
        SlotError: it cannot be started.
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
        raise SlotError(f"{slot_id}: its process cannot be started with {sys.executable}: {error}") from error
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it is gone: whoever connects finds out
        pipe.write(setup.to_bytes())
    return process
