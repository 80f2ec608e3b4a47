"""The driver dies at every point of a batch, and is interrupted: the next one goes on, exactly."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.driver_process import Driver
from tests.spark.killed_driver import HELD, POINTS, check, deliveries
from tests.spark.pipeline_functions import events
from tests.spark.spark_session import wait_for
from tests.spark.streams import Stream

pytestmark = pytest.mark.spark


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """Drivers that are ended with the test."""
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


@pytest.mark.long
@pytest.mark.reliability(2)
@pytest.mark.reliability(23)
def test_the_driver_dies_at_every_point(tmp_path: Path, drivers: list[Driver]) -> None:
    """Catches: a batch that is lost, run twice, or delivered with other rows the second time; what a death leaves."""
    given = events(220)
    Stream(None, tmp_path).add(*(given[n : n + 20] for n in range(0, 220, 20)))
    for number, point in enumerate(POINTS):
        drivers.append(Driver(tmp_path, point, str(1 + number)))
        assert drivers[-1].wait() == -signal.SIGKILL, drivers[-1].printed()
    last = Driver(tmp_path, HELD, "8")  # it cannot end before it is interrupted
    drivers.append(last)
    wait_for(lambda: len(deliveries(tmp_path, "fs")) > 6 or last.process.poll() is not None, "a batch more")
    assert last.process.poll() is None, last.printed()
    os.killpg(last.process.pid, signal.SIGINT)  # as a terminal does
    assert last.wait() != 0
    drivers.append(Driver(tmp_path))
    assert drivers[-1].wait() == 0, drivers[-1].printed()
    for job in ("fs", "rocksdb"):
        # A batch per file, and the closing one. A driver that dies between its source's log and the query's leaves a
        # file that Spark's next batch takes with its own: each of the six deaths may save a batch.
        assert 5 <= max(deliveries(tmp_path, job)) <= 11
        check(tmp_path, job, given)
    # A batch is delivered again if its driver died in the sink or after it, and not before.
    again = {batch: len(times) for batch, times in deliveries(tmp_path, "fs").items() if batch in range(1, 6)}
    assert again == {1: 1, 2: 1, 3: 1, 4: 2, 5: 2}
