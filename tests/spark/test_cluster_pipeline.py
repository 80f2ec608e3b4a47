"""The pipeline on a real cluster: a master and two workers with an executor of one core each.

The tests use one cluster, in order: those that kill come later. What comes out is compared with a plain computation
every time, row by row.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.patience import PATIENCE
from tests.project.markdown import ROOT, blocks
from tests.spark.cluster import Cluster, wait_until
from tests.spark.cluster_job import SUBMIT_OPTIONS, DriverProcess, Job, kill_executor

pytestmark = [pytest.mark.spark, pytest.mark.long]

#: For EMBERSTATE_ORDER.
IN_ORDER = True

#: From the first killed driver on.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
}
#: Too many rows for an output to go through the driver.
MANY = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster; whatever of it is left at the end is an error."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    made.start_worker()
    made.start_worker()
    yield made
    made.close()


class Drivers:
    """The driver that runs at present."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._driver: DriverProcess | None = None
        self._jobs = itertools.count()
        self._settings: dict[str, str] = {}

    def driver(self) -> DriverProcess:
        if self._driver is None:
            self._driver = DriverProcess(self._cluster)
            self._driver.start_session(**self._settings)
        return self._driver

    def kill(self) -> None:
        assert self._driver is not None
        self._settings = SPECULATION
        driver, self._driver = self._driver, None
        driver.kill()

    def job(self, parallelism: int, stages: int = 1, backend: str = "files") -> Job:
        root = self._cluster.root / f"job{next(self._jobs)}"
        return Job(root, self.driver(), parallelism=parallelism, stages=stages, backend=backend)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


@pytest.fixture(scope="module")
def drivers(cluster: Cluster) -> Iterator[Drivers]:
    """Whoever drives."""
    made = Drivers(cluster)
    yield made
    made.close()


def placed(cluster: Cluster, job: Job, operator: str = "tally") -> dict[int, str]:
    """Where the slots are that the driver believes in; it must be so."""
    expected = {int(slot): executor for slot, executor in job.driver.tell("placement").items()}
    found = {(number, executor) for name, number, executor in cluster.slots().values() if name == operator}
    assert set(expected.items()) <= found
    return expected


@pytest.mark.parametrize("parallelism", [2, 4])
def test_slots_stay_where_they_are(cluster: Cluster, drivers: Drivers, parallelism: int) -> None:
    """Catches: tasks that go where the slot is not, so that state is restored again and again."""
    job = drivers.job(parallelism)
    job.feed(11)
    job.start()
    job.wait()
    job.check()
    slots = [one["slots"] for one in job.progress()]
    assert slots[0] == {"hot": 0, "rolled back": 0, "restored": parallelism}
    # While everything starts, a task may have to wait for its executor for so long that Spark sends it elsewhere.
    assert slots[-5:] == [{"hot": parallelism, "rolled back": 0, "restored": 0}] * 5
    assert Counter(Counter(placed(cluster, job).values()).values()) == {parallelism // 2: 2}
    job.stop()


def test_the_plan_has_the_anchor(drivers: Drivers) -> None:
    """Catches: an optimizer that removes the join with the anchor, or shuffles for it."""
    plans = drivers.driver().tell("keyed_plans")
    assert len(plans) >= 11
    for plan in plans:
        tree, _, details = plan.partition("\n\n\n")
        assert tree.count("ShuffledHashJoin Inner BuildRight") == 1
        assert tree.count("Exchange") == 1
        assert "Broadcast" not in tree
        anchor = [part for part in details.split("\n\n") if "ParallelCollectionRDD" in part]
        assert len(anchor) == 1 and "[__slot#" in anchor[0] and "shufflepartitionidpassthrough" in anchor[0]


def test_no_rows_at_all(drivers: Drivers) -> None:
    """Catches: an optimizer that knows that a join with nothing is nothing, and runs no slot."""
    assert drivers.driver().tell("run_without_rows") == 1


def test_a_spark_that_is_otherwise(drivers: Drivers) -> None:
    """Catches: a pipeline that does not run on a later Spark, or is slow there and nobody knows why."""
    seen, said = drivers.driver().tell("run_without_anchor")
    assert seen == [1, 2, 3]
    assert len(said) == 1 and "cannot be tied to executors" in said[0] and "makeCopy does not exist" in said[0]


@pytest.mark.reliability(23)
def test_executors_are_killed(cluster: Cluster, drivers: Drivers) -> None:
    """Catches: rows lost or counted twice, and processes left behind, when an executor dies: between batches, in one,
    while stage 2 reads what stage 1 has stored, while the sink reads."""
    job = drivers.job(parallelism=2, stages=2)
    job.feed(2)
    job.start()
    job.wait()
    kill_executor(cluster, next(iter(cluster.executors().values())))
    job.feed(1)
    job.wait()
    assert job.progress()[-1]["slots"]["restored"] == 2  # one of each stage
    job.driver.wait_for_executors(2)

    row = job.point("row")
    job.feed(2, command=str(row))
    job.kill_executor_at(row)
    job.wait()
    job.driver.wait_for_executors(2)

    read = job.point("read")
    job.feed(1, rows=MANY)
    job.kill_executor_at(read)
    job.wait()
    job.driver.wait_for_executors(2)

    sink = job.point("sink")
    job.feed(1, rows=MANY)
    job.kill_executor_at(sink)
    job.wait()
    job.check()
    job.driver.wait_for_executors(2)

    job.feed(4)
    job.wait()
    job.check()
    assert job.progress()[-1]["slots"] == {"hot": 4, "rolled back": 0, "restored": 0}
    assert len(set(placed(cluster, job, "tally").values())) == 2
    assert len(set(placed(cluster, job, "rank").values())) == 2
    job.stop()


@pytest.mark.reliability(23)
def test_a_worker_goes_and_another_comes(cluster: Cluster, drivers: Drivers) -> None:
    """Catches: slots that all stay on the executor that survived, for good; local files that are left behind."""
    job = drivers.job(parallelism=4, backend="rocksdb")
    job.feed(2)
    job.start()
    job.wait()
    before = placed(cluster, job)
    cluster.kill_worker(min(cluster.workers))
    job.feed(2)
    job.wait()
    survivor = set(placed(cluster, job).values())
    assert len(survivor) == 1 and survivor < set(before.values())

    cluster.start_worker()
    job.driver.wait_for_executors(2)
    job.feed(3)
    job.wait()
    job.check()
    after = placed(cluster, job)
    assert Counter(Counter(after.values()).values()) == {2: 2}
    assert sum(1 for slot in after if {after[slot]} == survivor) == 2
    assert job.progress()[-1]["slots"] == {"hot": 4, "rolled back": 0, "restored": 0}
    job.stop()


@pytest.mark.reliability(23)
def test_the_driver_is_killed(cluster: Cluster, drivers: Drivers) -> None:
    """Catches: slots and executors that outlive a driver; a batch that is computed again, or delivered otherwise,
    though it was committed."""
    job = drivers.job(parallelism=2)
    job.feed(2)
    job.start()
    job.wait()
    sink = job.point("sink")
    job.feed(1)
    job.held(sink)
    drivers.kill()
    wait_until(lambda: not cluster.executors() and not cluster.slots(), "the end of executors and slots")
    daemons = {cluster.master_pid, *(worker.pid for worker in cluster.workers.values())}
    wait_until(lambda: cluster.processes().keys() <= daemons, "the end of all but the daemons")
    job.let_go(sink)

    job.driver = drivers.driver()
    job.start()
    job.feed(2)
    job.wait()
    job.check()
    assert [one["batch"] for one in job.progress() if one["redelivered"]] == [2]
    job.stop()


@pytest.mark.reliability(23)
def test_speculation(cluster: Cluster, drivers: Drivers) -> None:
    """Catches: a slow task and its speculative copy that both count."""
    job = drivers.job(parallelism=2)
    job.feed(2)
    job.start()
    job.wait()
    slow = job.point("slow", first=True)
    job.feed(1, command=str(slow))
    job.held(slow)
    job.wait()  # the copy, on the other executor, is not held
    job.let_go(slow)
    job.feed(3)
    job.wait()
    job.check()
    job.stop()


def test_what_a_session_lacks(cluster: Cluster, drivers: Drivers) -> None:
    """Catches: a session that makes everything slow, or starves slots of memory, and nothing is said."""
    driver = drivers.driver()
    assert driver.tell("missing_settings") == []
    driver.tell("bare_session", master=cluster.url, settings={"spark.executor.pyspark.memory": "1g"})
    assert [line.split(" is ")[0] for line in driver.tell("missing_settings")] == [
        "spark.python.unix.domain.socket.enabled",
        "spark.shuffle.reduceLocality.enabled",
        "spark.locality.wait.process",
        "spark.executor.pyspark.memory",
    ]
    enough = {"spark.locality.wait": "1m", "spark.executor.pyspark.memory": "1g"}
    driver.tell("bare_session", master=cluster.url, settings=enough)
    assert not any("locality.wait" in line for line in driver.tell("missing_settings"))


@pytest.mark.parametrize("shipped", ["user code", "user code and library"])
def test_submitted_as_documented(cluster: Cluster, drivers: Drivers, shipped: str, tmp_path: Path) -> None:
    """Catches: commands in docs/cluster.md that do not work; modules that do not reach the slots; a library out of a
    zip file that does not run, or does not say that it is slow."""
    drivers.close()
    page = blocks((ROOT / "docs" / "cluster.md").read_text(encoding="utf-8"))
    commands = []
    for block in page:
        if block.info[:1] == ("python",) and block.lines[0].startswith("# "):
            (tmp_path / block.lines[0].removeprefix("# ")).write_text("\n".join(block.lines), encoding="utf-8")
        elif block.info == ("bash",):
            commands.append("\n".join(block.lines))
    (tmp_path / "payments").mkdir()
    for card in ("ann", "bob"):
        rows = [{"card": card, "amount": amount, "ts": f"2026-01-01T00:00:0{amount}Z"} for amount in (1, 2, 4)]
        (tmp_path / "payments" / card).write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")

    command = commands[0] if shipped == "user code" else f"PYSPARK_PYTHON={sys.executable}\n{commands[1]}"
    for documented, here in {
        "/opt/cards/.venv/bin/python": sys.executable,
        "python -c": f"{sys.executable} -c",
        "spark://master:7077": f"{cluster.url} {SUBMIT_OPTIONS}",
        "/shared/cards": str(tmp_path),
    }.items():
        command = command.replace(documented, here)
    path = os.pathsep.join([str(Path(pyspark.__file__).parent / "bin"), cluster.environment["PATH"]])
    environment = {**cluster.environment, "PATH": path}
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for file in tmp_path.glob("spending/*/*.json") for line in file.read_text().splitlines()]
    expected = [(card, n + 1, total) for card in ("ann", "bob") for n, total in enumerate((1.0, 3.0, 7.0))]
    assert sorted((row["card"], row["payments"], row["total"]) for row in found) == expected
    newest = max((cluster.root / "work").glob("*/app-*"), key=lambda folder: folder.name).name

    def logs() -> str:
        return "".join(file.read_text(errors="replace") for file in cluster.root.glob(f"work/*/{newest}/*/stderr"))

    wait_until(lambda: "Started as process" in logs(), "that a slot says so in its executor's log")
    assert ("The hot modules run interpreted" in logs()) == (shipped == "user code and library")
    assert ("emberstate.zip" in logs()) == (shipped == "user code and library")
