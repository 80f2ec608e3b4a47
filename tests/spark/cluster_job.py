"""The tests' side of a job on the cluster: a driver process, a stream fed with files, and what must come out."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE
from tests.spark.cluster import Cluster, ancestors, wait_until

_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Small and quick to start.
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
_DRIVER = f"--driver-memory 512m --driver-java-options '{_JVM}'"

#: The same, for spark-submit.
SUBMIT_OPTIONS = " ".join([_DRIVER, *(f"--conf '{key}={value}'" for key, value in SETTINGS.items())])


class DriverProcess:
    """A process that runs `cluster_driver`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.log = cluster.root / "logs" / f"driver-{len(list((cluster.root / 'logs').iterdir()))}"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.cluster_driver"],
                env={**cluster.environment, "PYSPARK_SUBMIT_ARGS": f"{_DRIVER} pyspark-shell"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=cluster.root,
            )

    def tell(self, do: str, **arguments: Any) -> Any:
        """Have it do something; the result."""
        assert self._process.stdin is not None and self._process.stdout is not None
        # A driver that does not answer is killed, and so read from no longer.
        guard = threading.Timer(PATIENCE, self._process.kill)
        guard.start()
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            guard.cancel()
        assert line, f"the driver ended while it did {do}; its log:\n{self.last_words()}"
        reply = json.loads(line)
        assert "error" not in reply, reply["error"]
        return reply["result"]

    def start_session(self, **settings: str) -> None:
        """Start a session with two executors."""
        sockets = {"spark.python.unix.domain.socket.dir": str(self._cluster.root / "tmp")}
        self.tell("session", master=self._cluster.url, settings={**SETTINGS, **sockets, **settings})
        self.wait_for_executors(len(self._cluster.workers))

    def wait_for_executors(self, count: int) -> None:
        """Wait until Spark has so many."""
        wait_until(lambda: len(self.tell("executors")) == count, f"that there are {count} executors")

    def kill(self) -> None:
        """SIGKILL the whole driver: Python and the JVM."""
        for pid in self._cluster.family(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End as a program does."""
        if self._process.poll() is None:
            self.tell("quit")
            self._process.wait(PATIENCE)

    def last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]


class Job:
    """A stream of rows, and the model that says what is right."""

    def __init__(
        self, root: Path, driver: DriverProcess, *, parallelism: int, stages: int = 1, backend: str = "files"
    ) -> None:
        self.root = root
        self.backend = backend
        self.driver = driver
        self.parallelism = parallelism
        self.stages = stages
        for folder in ("input", "output", "points"):
            (root / folder).mkdir(parents=True)
        self.fed = 0
        self._random = random.Random(root.name)
        self._time = datetime(2026, 1, 1, tzinfo=UTC)
        self._seen: Counter[str] = Counter()
        self._total: Counter[str] = Counter()
        self._rank: Counter[str] = Counter()
        self._expected: list[list[tuple[Any, ...]]] = []

    def start(self) -> None:
        """Start the stream."""
        self.driver.tell(
            "query",
            root=str(self.root),
            parallelism=self.parallelism,
            stages=self.stages,
            backend_kind=self.backend,
        )

    def stop(self) -> None:
        """Stop the stream."""
        self.driver.tell("stop_query")

    def feed(self, batches: int = 1, rows: int = 300, command: str = "") -> None:
        """Give the stream some batches. One row of the last has the command."""
        for batch in range(batches):
            made = []
            expected = []
            for number in range(rows):
                key = f"key-{self._random.randrange(40)}"
                value = self._random.randrange(1000)
                self._time += timedelta(microseconds=1)
                ordered = command if batch == batches - 1 and number == rows // 2 else ""
                made.append({"key": key, "value": value, "ts": self._time.isoformat(), "command": ordered})
                self._seen[key] += 1
                self._total[key] += value
                self._rank[key[-1]] += 1
                tally = (key, key[-1], self._time, self._seen[key], self._total[key])
                expected.append(tally if self.stages == 1 else (*tally, self._rank[key[-1]]))
            self._expected.append(expected)
            temporary = self.root / f"{self.fed}.json"
            temporary.write_text("\n".join(json.dumps(row) for row in made), encoding="utf-8")
            os.utime(temporary, (1_700_000_000 + self.fed,) * 2)  # the order in which Spark takes them
            temporary.rename(self.root / "input" / temporary.name)
            self.fed += 1

    def wait(self, batch: int | None = None) -> None:
        """Wait until a batch has come out whole, by default the last that was fed."""
        number = self.fed - 1 if batch is None else batch

        def done() -> bool:
            if self.progress() and self.progress()[-1]["batch"] >= number:
                return True
            failure = self.driver.tell("failure")
            assert failure is None, failure
            return False

        wait_until(done, f"batch {number} of {self.root.name}")

    def progress(self) -> list[dict[str, Any]]:
        """What the listener heard so far."""
        file = self.root / "progress"
        if not file.exists():
            return []
        lines = file.read_text(encoding="utf-8").split("\n")
        return [json.loads(line) for line in lines[:-1]]

    def check(self) -> None:
        """What came out is what must come out, exactly, and the same each time."""
        differing = [file.name for file in (self.root / "output").glob("*.differs")]
        assert not differing, f"delivered again, and different: {differing}"
        assert len(list((self.root / "output").glob("*.json"))) == self.fed
        for batch, expected in enumerate(self._delivered()):
            text = (self.root / "output" / f"{batch}.json").read_text(encoding="utf-8")
            found = [_without_noise(row) for row in json.loads(text)]
            assert found == expected, f"batch {batch} of {self.root.name}"

    def _delivered(self) -> list[list[tuple[Any, ...]]]:
        """What each batch delivers. A second stage handles a row when the watermark, the latest time of the batches
        before, has passed it: in the next batch, and the last row of a batch in the one after that."""
        if self.stages == 1:
            return self._expected
        rows = [row for expected in self._expected for row in expected]
        ends = list(itertools.accumulate(len(expected) for expected in self._expected))
        passed = [0, *(end - 1 for end in ends[:-1])]
        return [rows[before:now] for before, now in zip([0, *passed], passed, strict=False)]

    # -- points where to wait -------------------------------------------------------------------------------

    def point(self, name: str, *, first: bool = False) -> Path:
        """A point where whoever comes there is held from now on, or the first one alone."""
        path = self.root / "points" / name
        for suffix in (".go", ".taken"):
            path.with_suffix(suffix).unlink(missing_ok=True)
        for held in path.parent.glob(f"{name}.*.held"):
            held.unlink()
        path.with_suffix(".first" if first else ".hold").touch()
        return path

    def held(self, point: Path) -> int:
        """Wait for a process to be held there: its pid."""
        found = wait_until(lambda: list(point.parent.glob(f"{point.name}.*.held")), f"that {point.name} is reached")
        return int(found[0].name.split(".")[-2])

    def let_go(self, point: Path) -> None:
        """Hold nobody there any more."""
        for suffix in (".first", ".hold"):
            point.with_suffix(suffix).unlink(missing_ok=True)
        point.with_suffix(".go").touch()

    def kill_executor_at(self, point: Path) -> None:
        """Kill the executor of a process that is held, see that nothing is left of it, and let others go on."""
        cluster = self.driver._cluster
        pid = self.held(point)
        executor = next(one for one in cluster.executors().values() if one in ancestors(pid))
        kill_executor(cluster, executor)
        self.let_go(point)


def kill_executor(cluster: Cluster, pid: int) -> None:
    """SIGKILL an executor's JVM: all that came from it must end by itself."""
    family = cluster.family(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not family & cluster.processes().keys(), f"the end of all of executor {pid}: {family}")


def _without_noise(row: dict[str, Any]) -> tuple[Any, ...]:
    time = datetime.fromisoformat(row["ts"])
    rank = (row["rank"],) if "rank" in row else ()
    return (row["key"], row["team"], time, row["seen"], row["total"], *rank)
