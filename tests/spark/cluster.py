"""A real standalone cluster on loopback: a master, workers, and whatever they start, from pyspark's own jars.

Workers have addresses of their own, 127.0.0.2 and so on, as if they were machines.

Every process carries a mark in its environment, by which all of them are found, children of children too: that is
how the leak check knows that nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyspark

import emberstate
from emberstate.spark.slot.process_watch import parent_of
from tests.patience import PATIENCE

_MARK = "EM_TEST_CLUSTER"
_HOST = "127.0.0.1"
_SPARK_HOME = Path(pyspark.__file__).parent
_SOURCES = Path(emberstate.__file__).parent.parent
_REPOSITORY = Path(__file__).parents[2]

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], what: str, patience: float = PATIENCE) -> T:
    """Wait for something to be true, and give it."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {patience:g} s")
        time.sleep(0.1)
    return found


class Cluster:
    """A master and its workers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        for folder in ("logs", "local", "work", "tmp"):
            (root / folder).mkdir()
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        self._master = self._start("master", "org.apache.spark.deploy.master.Master", "--host", _HOST)
        self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
        self.page = self._said("master", r"started at (http://\S+)")

    @property
    def master_pid(self) -> int:
        """The master's."""
        return self._master.pid

    @property
    def environment(self) -> dict[str, str]:
        """For every process of the cluster, and for drivers."""
        others = ("SPARK_", "PYSPARK_", "PYTHON", "EMBERSTATE_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        return {
            **kept,
            _MARK: self.mark,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(_SOURCES), str(_REPOSITORY)]),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self.root / "local"),
            "TMPDIR": str(self.root / "tmp"),
        }

    def start_worker(self) -> int:
        """Start a worker of one core; it is registered, its number is returned."""
        number = self._started
        self._started += 1
        work = str(self.root / "work" / str(number))
        host = f"127.0.0.{number + 2}"  # Spark runs no speculative task on the host of the first one
        options = ["--host", host, "-c", "1", "-m", "1g", "-d", work, self.url]
        self.workers[number] = self._start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", *options)
        self._said(f"worker{number}", r"Successfully registered with master (\S+)")
        return number

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and its executors at once, as if its machine were gone."""
        worker = self.workers.pop(number)
        children = [pid for pid in self.processes("CoarseGrainedExecutorBackend") if parent_of(pid) == worker.pid]
        for pid in (worker.pid, *children):
            os.kill(pid, signal.SIGKILL)
        worker.wait()

    def close(self) -> None:
        """End everything; what had to be killed, beyond the daemons, is an error."""
        for process in (*self.workers.values(), self._master):
            process.terminate()
        for process in (*self.workers.values(), self._master):
            process.wait(PATIENCE)
        try:
            self.check_nothing_runs()
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.check_no_files()

    # -- what is there --------------------------------------------------------------------------------------

    def state(self) -> Any:
        """What the master knows."""
        with urllib.request.urlopen(f"{self.page}/json/", timeout=PATIENCE) as page:
            return json.load(page)

    def processes(self, containing: str = "") -> dict[int, list[str]]:
        """The command lines of all processes of this cluster, of its drivers and their children, by pid."""
        found = {}
        mark = f"{_MARK}={self.mark}".encode()
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                    if command and any(containing in argument for argument in command):
                        found[int(folder.name)] = command
        return found

    def executors(self) -> dict[str, int]:
        """The pids of executors by their id, of the one application that runs."""
        found = self.processes("CoarseGrainedExecutorBackend")
        return {command[command.index("--executor-id") + 1]: pid for pid, command in found.items()}

    def slots(self) -> dict[int, tuple[str, int, str]]:
        """Slot processes by pid: operator, number, id of the executor that has it."""
        by_pid = {pid: ident for ident, pid in self.executors().items()}
        found = {}
        for pid, command in self.processes("emberstate.spark.slot.process").items():
            where = next((by_pid[one] for one in ancestors(pid) if one in by_pid), "")
            operator, number = (command[command.index(name) + 1] for name in ("--operator", "--slot"))
            found[pid] = (operator, int(number), where)
        return found

    def family(self, pid: int) -> set[int]:
        """A process and all that come from it."""
        return {pid, *(one for one in self.processes() if pid in ancestors(one))}

    def check_nothing_runs(self) -> None:
        """No process is left, and so no socket: a slot's socket has no file, and goes with its process."""
        wait_until(lambda: not self.processes(), f"the end of all processes ({self.processes()})")

    def check_no_files(self) -> None:
        """Nothing of the library is left among temporary files."""
        left = [str(path) for path in (self.root / "tmp").rglob("*") if "emberstate" in path.name]
        assert not left, f"files are left: {left}"

    # -- processes ------------------------------------------------------------------------------------------

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(_SPARK_HOME / "bin" / "spark-class"), main, "--port", "0", "--webui-port", "0", *arguments]
        host = arguments[arguments.index("--host") + 1]
        with (self.root / "logs" / name).open("wb") as log:
            return subprocess.Popen(
                command,
                env={**self.environment, "SPARK_LOCAL_IP": host},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
            )

    def _said(self, name: str, pattern: str) -> str:
        """What a daemon has said in its log."""
        log = self.root / "logs" / name

        def look() -> re.Match[str] | None:
            return re.search(pattern, log.read_text(encoding="utf-8", errors="replace"))

        return wait_until(look, f"that {name} says {pattern!r} in {log}")[1]


def ancestors(pid: int) -> Iterator[int]:
    """The parent, its parent, and so on; then those of the process group.

    A slot outlives the Python worker that started it, and is nobody's child then, but stays in its daemon's group.
    """
    with contextlib.suppress(ProcessLookupError):
        group = os.getpgid(pid)
        for first in (pid, group):
            one = first
            while (one := parent_of(one)) > 0:
                yield one
        yield group
