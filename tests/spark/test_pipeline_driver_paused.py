"""A driver is stopped in its sink, a second one takes over and goes on, and the first wakes up."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.spark.driver_process import Driver
from tests.spark.paused_driver import RETAINED, entered, gate
from tests.spark.spark_session import wait_for
from tests.spark.streams import Stream, at

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.reliability(12)
@pytest.mark.parametrize("sink", RETAINED)
def test_a_driver_wakes_up_in_its_sink_after_another_has_gone_on(tmp_path: Path, sink: str) -> None:
    """Catches: the stored output that the first reads deleted by the second, so that its overwrite takes away what the
    second had delivered and puts nothing in its place; a sink that is said to be safe and is not."""
    rows = [[(f"k{n % 7}", at(n), batch * 1000 + n) for n in range(600)] for batch in range(4)]
    Stream(None, tmp_path).add(*rows)
    gate(tmp_path).touch()
    first = Driver(tmp_path, sink, "1", module="tests.spark.paused_driver")
    second = None
    try:
        wait_for(lambda: entered(tmp_path).exists() or first.process.poll() is not None, "the first driver's sink")
        assert first.process.poll() is None, first.printed()
        os.killpg(first.process.pid, signal.SIGSTOP)
        gate(tmp_path).unlink()
        second = Driver(tmp_path, sink, module="tests.spark.paused_driver")
        assert second.wait() == 0, second.printed()
        delivered = [sorted(_lines(tmp_path, batch)) for batch in range(4)]
        assert [len(lines) for lines in delivered] == [600] * 4
        os.killpg(first.process.pid, signal.SIGCONT)
        assert first.wait() != 0, "it was overtaken, and did not notice"
        assert [sorted(_lines(tmp_path, batch)) for batch in range(4)] == delivered
    finally:
        for driver in (first, second):
            if driver is not None:
                driver.kill()


def _lines(root: Path, batch: int) -> list[str]:
    files = sorted((root / "out" / f"batch={batch}").glob("*.json"))
    return [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
