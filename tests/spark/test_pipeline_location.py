"""What a location is to a job: its identity, and the times that are remembered there before the first batch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.history.writer import flush_all
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.job_start import open_job, stage_specs
from emberstate.spark.driver.recorded_outputs import recorded_stages
from emberstate.spark.driver.source_position import SourcePosition
from tests.patience import PATIENCE
from tests.spark.pipeline_functions import TOTALS, Totals, events, totals
from tests.spark.spark_session import ROOT
from tests.spark.streams import EVENTS, Kept, Stream, at

pytestmark = pytest.mark.spark


def add_up(pipeline: es.Pipeline, sink: Any) -> es.Pipeline:
    """Totals by key, in order of time."""
    return pipeline.key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(sink)


def test_state_and_offsets_deleted_and_the_job_started_again(stream: Stream) -> None:
    """Catches: slots of the ended query that refuse the new one as older than what they have seen, or lend it their
    state, because they take the new location for the one that was deleted."""
    given = events(40)
    stream.add(given[:20], given[20:])
    for _ in range(2):  # the second start has an incarnation that is no larger than that of the slots
        stream.drain(add_up(stream.pipeline(), Kept()))
    flush_all(PATIENCE)  # the history, which is written beside
    shutil.rmtree(stream.root / "state")
    shutil.rmtree(stream.checkpoint)
    kept = Kept()
    stream.drain(add_up(stream.pipeline(), kept))
    assert sorted(kept.rows) == sorted(totals(given))


def test_two_jobs_of_one_name_in_memory_one_after_the_other(stream: Stream) -> None:
    """Catches: slots that know a memory by its address, which the next one may have as well."""
    given = events(20)
    stream.add(given)
    rows = stream.static()
    backend = es.MemoryStateBackend()
    first = add_up(es.Pipeline("job", backend, parallelism=2), Kept())
    first(rows, 0)
    first(rows, 1)
    backend.discard()  # what comes now is new, and stands at the same address
    kept = Kept()
    add_up(es.Pipeline("job", backend, parallelism=2), kept)(rows, 0)
    assert sorted(kept.rows) == sorted(totals(given))


def saved_job(root: Path, sink: Any) -> es.Pipeline:
    """The job of `test_killed_…`, which starts from a savepoint of another."""
    pipeline = add_up(es.Pipeline("job", es.FsStateBackend(root / "new"), parallelism=2), sink)
    return pipeline.from_savepoint("one", location=es.FsStateBackend(root / "state"), source_position="elsewhere")


def open_and_die(root: Path) -> None:
    """Open the job, as the first batch of its query does, and be killed before the batch is begun."""
    plan, rows = saved_job(root, Kept())._plan, RowType.of(EVENTS)
    types = plan.row_types(rows)
    stages = recorded_stages({stage.name: found for stage, found in zip(plan.stages, types, strict=True)})
    open_job(plan, stage_specs(plan, types, rows, {}, 2), stages, plan.backend, 0, SourcePosition("q", "run", "0"))
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_between_the_opening_from_a_savepoint_and_the_first_batch(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: watermark and greatest event time forgotten with the process that opened the job: a late row counts; a
    late row that is dropped without a word in the log."""
    stream.add([("a", at(0), 1), ("a", at(100), 2)], [("a", at(101), 3)])
    query = stream.start(pipeline := add_up(stream.pipeline(), Kept()))
    query.processAllAvailable()
    pipeline.savepoint("one")
    query.stop()
    program = f"from tests.spark.test_pipeline_location import *; open_and_die(Path({str(stream.root)!r}))"
    died = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=PATIENCE, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    storage = es.FsStateBackend(stream.root / "new").open_storage()
    opened = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
    assert opened.kind == "opening" and opened.batch is None
    kept = Kept()
    job = saved_job(stream.root, kept)
    rows = stream.spark.createDataFrame([("a", at(50), 10), ("a", at(102), 20)], EVENTS)
    job(rows, 0)
    assert kept.rows == [("a", 26, 1)]
    assert job.last_progress is not None and job.last_progress.late_rows_dropped == 1
    (warning,) = [one for one in caplog.records if "late rows" in one.getMessage()]
    assert (warning.levelname, warning.args) == ("WARNING", ("job", "totals", 1))
    job(rows.limit(0), 1)
    assert job.last_progress.watermark == at(102)
