"""The address of a slot: an abstract Unix socket, whose name is a digest of the slot's identity and a secret.

An abstract name (Linux) is no file: it goes with the last process that holds the socket, however that ends. It has no
permissions either: so the name cannot be guessed without the application's token, and both sides ask the kernel for the
user of the other. Every user can see names in use, and may take one when its slot has ended: a slot has several names,
and skips one that another user holds.

A slot belongs to an executor. A Python worker finds its executor as its grandparent: workers are forked by
pyspark's daemon, which the executor's JVM has started.

Thread safety: pure functions.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import os
import socket
import struct
from pathlib import Path
from typing import Final, Self

from emberstate.spark.slot.process_watch import ProcessId, parent_of

#: The module that a slot's process runs.
SLOT_MODULE: Final = "emberstate.spark.slot.process"
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotId:
    """The identity of a slot, its secret and its limits.

    `token` is a secret of the application, the same for all starts of the job there. The process ends after
    `idle_seconds` without a request, until its program gives another limit; and if the function does not return within
    `stuck_seconds` after a later attempt has come, so that the attempt gets a new process. A task that waits for the
    process kills it if it makes no progress for `stall_seconds`.
    """

    application: str
    job: str
    #: The identity of the job's location; a path may be copied, or deleted and made again.
    location: str = ""
    operator: str
    slot: int
    token: str = dataclasses.field(repr=False)
    idle_seconds: float
    stuck_seconds: float = 120.0
    stall_seconds: float = 300.0

    @property
    def arguments(self) -> list[str]:
        """The arguments that identify the slot's process, also in ps."""
        return [SLOT_MODULE, "--job", self.job, "--operator", self.operator, "--slot", str(self.slot)]

    def __str__(self) -> str:
        return f"slot {self.slot} of operator {self.operator!r} of job {self.job!r}"


@dataclasses.dataclass(frozen=True, slots=True)
class Executor:
    """The processes that a slot belongs to: the executor, and the daemon that its workers come from."""

    process: ProcessId
    daemon: ProcessId

    @classmethod
    def of_this_worker(cls) -> Self:
        """The executor of the calling process; a process without a grandparent stands for itself."""
        daemon = ProcessId.of(os.getppid()) or _this_process()
        grandparent = ProcessId.of(parent_of(daemon.pid)) or daemon
        return cls(grandparent, daemon)


def _this_process() -> ProcessId:
    found = ProcessId.of(os.getpid())
    assert found is not None
    return found


def address_of(slot_id: SlotId, executor: Executor, number: int = 0) -> bytes:
    """The name of the slot's socket; `number` counts its names, tried in order while another user holds one."""
    parts = [
        os.getuid(),
        slot_id.application,
        Path("/proc/self/ns/pid").stat().st_ino,  # pids are a container's, abstract names may be the machine's
        executor.process.pid,
        executor.process.started,
        slot_id.job,
        slot_id.location,
        slot_id.operator,
        slot_id.slot,
        number,
    ]
    name = hmac.digest(slot_id.token.encode(), json.dumps(parts).encode(), "sha256").hex()[:40]
    return b"\0emberstate-" + name.encode()


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Pid and user id of the process at the other end, which called `connect` or `listen` there."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
