"""A local Spark session for tests, and a look at what it leaves behind.

Processes that come of a session are known by an environment variable that they inherit, whatever their parents are
by then. The machine may run other tests meanwhile.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext

import emberstate
from emberstate.rocksdb.local_directory import reclaim
from emberstate.spark import session
from tests.patience import PATIENCE

MARK = "EMBERSTATE_TEST_SESSION"
ROOT = Path(__file__).parents[2]
SOURCE = Path(emberstate.__file__).parents[1]


def environment(temporary: Path) -> dict[str, str]:
    """What a driver needs so that executors find the package and these tests."""
    before = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = [str(SOURCE), str(ROOT), str(code_folder(temporary)), *before]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        MARK: secrets.token_hex(8),
    }


def code_folder(temporary: Path) -> Path:
    """A folder for modules that executors can import, too."""
    folder = temporary / "code"
    folder.mkdir(exist_ok=True)
    return folder


def local_session(name: str, temporary: Path, **settings: str) -> Any:
    """A session in local mode in which tasks are retried."""
    small = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.sql.streaming.stopTimeout": f"{PATIENCE:.0f}s",
        "spark.python.authenticate.socketTimeout": f"{PATIENCE:.0f}s",
        **settings,
    }
    spark = session(name, master="local[2,4]", settings=small)
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextmanager
def only_session(name: str, temporary: Path, **settings: str) -> Iterator[Any]:
    """The one session of a test process; when it ends no slot process, socket or file of it may be left."""
    given = environment(temporary)
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    end_jvm()
    session = local_session(name, temporary, **settings)
    try:
        yield session
        session.stop()
        check_nothing_left(given[MARK], temporary)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def end_jvm() -> None:
    """End the JVM of this process, if a test before has started one: it keeps the environment that it was started in,
    so the workers and slots of the next session would carry another mark, or none."""
    gateway = SparkContext._gateway
    if gateway is not None:
        assert SparkContext._active_spark_context is None, "another test's session still runs in this process"
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE)
        SparkContext._gateway = SparkContext._jvm = None


def slot_pids(mark: str) -> list[int]:
    """The slot processes of a session."""
    return [pid for pid in marked_pids(mark) if b"emberstate.spark.slot.process" in _read(pid, "cmdline")]


def worker_pids(mark: str) -> list[int]:
    """Its Python workers, which pyspark's daemon has forked."""
    daemons = [pid for pid in marked_pids(mark) if b"pyspark.daemon" in _read(pid, "cmdline")]
    return [pid for pid in daemons if parent(pid) in daemons]


def parent(pid: int) -> int:
    """The pid of a process's parent."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def marked_pids(mark: str) -> list[int]:
    """The processes that come of a session."""
    wanted = f"{MARK}={mark}".encode()
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if wanted in _read(pid, "environ").split(b"\0") and not _is_zombie(pid)]


def slot_sockets(mark: str) -> list[str]:
    """The slots' sockets that processes of a session hold."""
    named: dict[str, str] = {}
    for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines():
        if "@emberstate-" in line:
            fields = line.split()
            named[fields[6]] = fields[7]
    held = []
    for pid in marked_pids(mark):
        for descriptor in _listed(Path(f"/proc/{pid}/fd")):
            target = _link(descriptor)
            if target.startswith("socket:[") and target[8:-1] in named:
                held.append(f"{named[target[8:-1]]} by process {pid}")
    return held


def check_nothing_left(mark: str, temporary: Path) -> None:
    """Wait for the end of a session's slots; a file may be left only if the next slot would delete it.

    A slot that was killed, or that was not done within its grace, leaves its local files.
    """
    wait_for(lambda: not slot_pids(mark) and not slot_sockets(mark), "an end of all slots")
    reclaim(temporary)
    wait_for(lambda: not leaks(mark, temporary), f"an end of {leaks(mark, temporary)}")


def leaks(mark: str, temporary: Path) -> list[str]:
    """What a session that has ended has left: processes, sockets, files."""
    found = [f"process {pid}: {_read(pid, 'cmdline')!r:.200}" for pid in slot_pids(mark)]
    found += [f"socket {held}" for held in slot_sockets(mark)]
    for folder, folders, files in os.walk(temporary):  # does not mind what vanishes meanwhile
        found += [f"file {folder}/{name}" for name in (*folders, *files) if "emberstate" in name]
    return found


def wait_for(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """What the condition gives, as soon as that is something."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {patience:g} s for {what}"
        time.sleep(0.02)
    return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _is_zombie(pid: int) -> bool:
    return _read(pid, "stat").rpartition(b")")[2].split()[:1] == [b"Z"]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
