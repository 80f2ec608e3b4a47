"""Jobs and the processes around them; at the end nothing may be left: no process, no socket, no file."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from emberstate.rocksdb.local_directory import PREFIX
from emberstate.spark.slot.address import Executor
from emberstate.spark.slot.process_watch import ProcessId
from tests.patience import PATIENCE
from tests.spark.slot.slot_job import Job, state_backend

Say = Callable[[str], None]


def slot_pids(job: str) -> list[int]:
    """The processes of a job's slots."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"emberstate.spark.slot.process" in words and job.encode() in words:
                    found.append(int(entry.name))
    return found


def wait_for_end(pid: int) -> None:
    """Wait until a process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], PATIENCE)
        assert ready, f"process {pid} does not end"
    finally:
        os.close(descriptor)


class World:
    """What a test runs in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs: list[Job] = []
        self._stand_ins: list[subprocess.Popen[bytes]] = []
        self._workers: list[int] = []

    def job(self, kind: str = "fs", **options: Any) -> Job:
        """A new job."""
        job = Job(state_backend(kind, self.root / f"{len(self.jobs)}"), **options)
        self.jobs.append(job)
        return job

    def pid(self, job: Job) -> int:
        """The process of the job's slot; there must be one and no other."""
        (pid,) = slot_pids(job.name)
        return pid

    def stand_in(self) -> tuple[Executor, subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        """An executor: two processes that do nothing, for its JVM and for pyspark's daemon."""
        jvm, daemon = (
            subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)
        )
        self._stand_ins += [jvm, daemon]
        known = [ProcessId.of(process.pid) for process in (jvm, daemon)]
        assert known[0] is not None and known[1] is not None
        return Executor(known[0], known[1]), jvm, daemon

    def fork(self, work: Callable[[Say], None]) -> tuple[int, int]:
        """A worker process that does `work(say)`; its pid, and where to read what it says."""
        heard, said = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(heard)
                work(lambda text: _write(said, text))
            except BaseException as error:
                _write(said, f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        os.close(said)
        self._workers.append(pid)
        return pid, heard

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait for the end."""
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid)

    # -- the end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End what still runs, and see that nothing is left."""
        for pid in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for job in self.jobs:
            for pid in slot_pids(job.name):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGTERM)
                    os.kill(pid, signal.SIGCONT)  # a test that failed may have left it stopped
                wait_for_end(pid)
        for process in self._stand_ins:
            process.kill()
            process.communicate()
        for job in self.jobs:
            assert slot_pids(job.name) == []
            assert not is_bound(job.address), "its socket is still there"
        left = [path for path in self.root.rglob(f"{PREFIX}*") if path.exists()]
        assert left == [], "RocksDB's local files are still there"


def is_bound(address: bytes) -> bool:
    """Whether a socket has this name."""
    return "@" + address[1:].decode() in Path("/proc/net/unix").read_text(encoding="utf-8").split()


def _write(descriptor: int, text: str) -> None:
    data = text.encode()
    os.write(descriptor, len(data).to_bytes(4, "little") + data)


def heard(descriptor: int) -> str:
    """The next thing that a worker says; it is empty when it has ended."""
    size = os.read(descriptor, 4)
    return os.read(descriptor, int.from_bytes(size, "little")).decode() if size else ""


@contextlib.contextmanager
def open_world(root: Path) -> Iterator[World]:
    """A world that is looked over at the end."""
    world = World(root)
    try:
        yield world
    finally:
        world.close()


