"""`this_process`: how claims, pins and manifests name the process that wrote them.

Thread safety: any thread.
"""

from __future__ import annotations

import datetime
import os
import socket
from typing import NamedTuple


class ProcessName(NamedTuple):
    """A process, for people to find."""

    host: str
    pid: int
    #: A time in ISO format, UTC.
    time: str


def this_process(now_micros: int) -> ProcessName:
    """Return this process's host and id, and the time `now_micros` (µs since 1970)."""
    time = datetime.datetime.fromtimestamp(now_micros / 1e6, datetime.UTC).isoformat(timespec="seconds")
    return ProcessName(socket.gethostname()[:200], os.getpid(), time)
