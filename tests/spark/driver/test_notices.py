"""Warnings of a run of a query, without Spark."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

import emberstate as es
from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.notices import Notices
from emberstate.spark.driver.stage_run import StageRun

STAGE = StageSpec(
    name="bursts",
    function=es.KeyedProcessFunction(),
    inputs=(KeyedInput(RowType.of("key string, ts timestamp"), ["key"], event_time="ts"),),
    broadcast=None,
    output=None,
    side_outputs={},
    late_output=None,
    out_of_orderness="0 seconds",
    parallelism=1,
    max_parallelism=4,
)


def run(late: int, dropped: int) -> StageRun:
    counts = {"late_rows": late, "late_rows_dropped": dropped}
    return StageRun(
        0.1, [], [Acknowledgement(operator="bursts", slot=0, number=1, attempt="a", started_from="b", counts=counts)]
    )


def test_late_rows_that_the_first_stage_drops_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: rows dropped by the first stage without a word in the log; a warning in every batch."""
    notices = Notices("job")
    notices.late_rows(STAGE, run(0, 0))
    notices.late_rows(STAGE, run(2, 0))
    assert caplog.records == [], "the function has handled them"
    notices.late_rows(dataclasses.replace(STAGE, late_output="late"), run(2, 2))
    assert caplog.records == [], "they went to the late output"

    notices.late_rows(STAGE, run(3, 2))
    notices.late_rows(STAGE, run(3, 3))

    (record,) = caplog.records
    assert (record.levelname, record.args) == ("WARNING", ("job", "bursts", 2))


def test_late_rows_of_a_later_stage_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: rows that a stage stamped too old for the next one, handled as late without a word in the log."""
    notices, later = Notices("job"), dataclasses.replace(STAGE, follows=True)
    for late in (0, 4, 5):
        notices.late_rows(later, run(late, 0))

    (record,) = caplog.records
    assert (record.levelname, record.args) == ("WARNING", ("job", 4, "bursts", "bursts"))


def test_an_input_that_holds_the_watermark_back_is_logged_until_it_moves(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a stream that stands still for one silent input, without a word in the log; a warning per batch."""
    notices = Notices("job")
    batch = es.Progress(
        pipeline="job", batch=0, checkpoint=1, redelivered=False, rows_in=1, rows_out={}, late_rows=0,
        late_rows_dropped=0, null_keys=0, timers_fired=0, slots={}, state_entries=0, state_bytes=0, delta_bytes=0,
        watermark=datetime(2026, 1, 1, tzinfo=UTC), watermark_held_by="rules", counters={}, seconds={"total": 0.1},
    )  # fmt: skip
    for _ in range(10):
        notices.slow_input(batch)
    assert caplog.records == [], "the first batch has none before it"
    for _ in range(20):
        notices.slow_input(batch)
    assert len(caplog.records) == 1

    moved = dataclasses.replace(batch, watermark=datetime(2026, 1, 2, tzinfo=UTC))
    for _ in range(11):
        notices.slow_input(moved)
    assert len(caplog.records) == 2
