"""The end of what is available: windows that the last rows close, in a batch of Spark's own; and the end of input."""

from __future__ import annotations

import logging
import signal
from datetime import datetime
from pathlib import Path

import pytest

import emberstate as es
from emberstate.errors import RestoreRefusedError, StateDeclarationError
from tests.raising import raising
from tests.spark.closing_job import GIVEN, LAST, MORE, cut, minutes, two_stages
from tests.spark.driver_process import Driver
from tests.spark.killed_driver import POINTS, deliveries
from tests.spark.streams import Kept, Stream, at, query_failing

pytestmark = pytest.mark.spark


@pytest.mark.long
def test_what_is_available_is_closed_and_gone_on_with(stream: Stream) -> None:
    """Catches: windows that the last rows close and that stay open, in the first stage or the second; a batch of all
    files, though each is to be one; batch numbers that are not Spark's; time that is lost between two starts."""
    kept, progress = Kept(), list[es.Progress]()
    pipeline = two_stages(stream.pipeline(), kept).listener(progress.append)
    stream.add(*cut(GIVEN, 2), [LAST])
    stream.finish(pipeline)
    assert [one.rows_in for one in progress][:3] == [*(len(part) for part in cut(GIVEN, 2)), 1]
    assert sorted(kept.rows) == minutes(GIVEN, 300)
    assert progress[-1].watermark == at(300)
    batches = len(progress)
    assert [one.batch for one in progress] == list(range(batches))
    stream.finish(pipeline)
    assert len(progress) == batches, "there was nothing to do"
    stream.add(MORE)
    stream.finish(pipeline)
    assert [one.batch for one in progress] == list(range(batches + 2))
    assert sorted(kept.rows) == minutes([*GIVEN, LAST, *MORE], 500)
    assert sum(one.late_rows for one in progress) == 0


@pytest.mark.long
def test_a_heartbeat_leaves_every_file_its_batch(stream: Stream) -> None:
    """Catches: a source of ticks for whose sake Spark reads all files that are available in a single batch."""
    kept, progress = Kept(), list[es.Progress]()
    pipeline = two_stages(stream.pipeline(), kept).listener(progress.append)
    parts = cut(GIVEN, 4)
    stream.add(*parts, [LAST])
    stream.finish(pipeline, heartbeat="1 hour")
    assert [one.rows_in for one in progress if one.rows_in] == [*map(len, parts), 1]
    assert sorted(kept.rows) == minutes(GIVEN, 300)


@pytest.mark.long
def test_the_input_ends_by_name(stream: Stream) -> None:
    """Catches: windows that stay open though the input was said to end; rows after the end that are dropped in
    silence; an end that is said where it cannot be."""
    kept, progress = Kept(), list[es.Progress]()
    pipeline = two_stages(stream.pipeline(), kept).listener(progress.append)
    stream.add(*cut(GIVEN, 2), [LAST])
    stream.finish(pipeline, at_end="close")
    everything = minutes([*GIVEN, LAST], None)
    assert sorted(kept.rows) == everything
    batches = len(progress)
    stream.finish(pipeline, at_end="close")
    assert len(progress) == batches
    stream.add(MORE)
    with query_failing(pipeline, RestoreRefusedError, option="at_end", found="close"):
        stream.finish(pipeline)
    assert sorted(kept.rows) == everything and len(progress) == batches
    with raising(StateDeclarationError, option="at_end", found="close"):
        stream.start(pipeline, at_end="close")
    with raising(StateDeclarationError, option="at_end", found="now"):
        stream.start(pipeline, trigger={"availableNow": True}, at_end="now")


@pytest.mark.long
def test_a_run_ends_as_it_is_told(stream: Stream) -> None:
    """Catches: a savepoint for a stream whose windows a run has closed too early."""
    stream.add(*cut(GIVEN, 2), [LAST])
    open_, closed, after = Kept(), Kept(), Kept()
    two_stages(stream.pipeline(), closed).run(stream.static(), batches=2)
    assert sorted(closed.rows) == minutes([*GIVEN, LAST], None)
    two_stages(stream.pipeline(), open_).run(stream.static(), batches=2, save_as="history")
    assert set(open_.rows) < set(closed.rows)
    place = stream.root / "more"
    place.mkdir()
    more = Stream(stream.spark, place)
    more.add(MORE)
    started = two_stages(stream.pipeline(), after).from_savepoint("history", source_position="elsewhere")
    started.start(more.read(), checkpoint=more.checkpoint, trigger={"availableNow": True}).awaitTermination()
    assert sorted([*open_.rows, *after.rows]) == minutes([*GIVEN, LAST, *MORE], 500)
    with raising(StateDeclarationError, "save_as"):
        two_stages(stream.pipeline(), open_).run(stream.static(), save_as="again", at_end="close")


@pytest.mark.long
def test_a_query_that_began_without_ticks(stream: Stream, caplog: pytest.LogCaptureFixture) -> None:
    """Catches: Spark's own words on the number of sources; windows that stay open without a word."""
    kept, progress = Kept(), list[es.Progress]()
    pipeline = two_stages(stream.pipeline(), kept).listener(progress.append)
    stream.add(GIVEN, [LAST])
    stream.drain(pipeline)
    with caplog.at_level(logging.WARNING, "emberstate.spark"):
        stream.finish(pipeline)
    assert [line for line in caplog.messages if "stay open" in line and "savepoint" in line], caplog.messages
    assert len(progress) == 2
    with raising(StateDeclarationError, option="heartbeat"):
        stream.start(pipeline, heartbeat="1 second")
    with raising(StateDeclarationError, option="at_end"):
        stream.finish(pipeline, at_end="close")


@pytest.mark.long
@pytest.mark.reliability(2)
def test_the_driver_dies_while_it_closes(tmp_path: Path) -> None:
    """Catches: a closing batch that is lost, run twice, or runs with the rows that came meanwhile; files of ticks that
    a death leaves."""
    stream = Stream(None, tmp_path)
    stream.add(*cut(GIVEN, 2), [LAST])
    closing = 3
    for point in POINTS:
        driver = Driver(tmp_path, point, str(closing), "closing")
        assert driver.wait() == -signal.SIGKILL, driver.printed()
        if point == "begun":
            stream.add(MORE)
    driver = Driver(tmp_path, "", "-1", "closing")
    assert driver.wait() == 0, driver.printed()
    batches = deliveries(tmp_path, "closing")
    assert sorted(batches) == list(range(closing + 3)), "the rows that came meanwhile are a batch, and so is their end"
    assert all(rows == times[0] for times in batches.values() for rows in times)
    rows = [row for times in batches.values() for row in times[0]]
    found = sorted((key, datetime.fromisoformat(minute), total) for key, minute, total in rows)
    assert found == minutes([*GIVEN, LAST, *MORE], 500)
