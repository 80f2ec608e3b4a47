"""Servers that tests start: they end with the test process, however that ends."""

from __future__ import annotations

import ctypes
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def start_server(command: list[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, so that Ctrl-C is not sent to it; the kernel kills it when its parent
    has died."""
    with log.open("ab") as written:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=written, stderr=written, start_new_session=True,
            preexec_fn=_die_with_parent, **options,
        )  # fmt: skip


def kill_server(process: subprocess.Popen[bytes]) -> None:
    """End a server at once, as a power cut does."""
    process.kill()
    process.wait(PATIENCE)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    held = [socket.socket() for _ in range(number)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
