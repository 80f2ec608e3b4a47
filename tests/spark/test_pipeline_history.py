"""The history that a pipeline leaves in its location."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.commit.garbage import plan_collection
from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.reader import HistoryReader
from emberstate.checkpoint.history.writer import flush_all
from emberstate.errors import UserFunctionError
from emberstate.storage.local import LocalStorage
from tests.patience import PATIENCE
from tests.spark.pipeline_functions import TOTALS, Sabotaged, events
from tests.spark.streams import Kept, Stream, at, query_failing

pytestmark = pytest.mark.spark


def history(stream: Stream) -> tuple[HistoryRecord, ...]:
    """All of it."""
    flush_all(PATIENCE)
    found = HistoryReader(LocalStorage(stream.root / "state")).read()
    assert found.damaged == ()
    return found.records


@pytest.mark.long
def test_history_tells_what_happened(stream: Stream, tmp_path: Path) -> None:
    """Catches: a batch, a repeated attempt, a restore, a rescale, a savepoint or a failure without its record; numbers
    that are not those of the batch or of the slot; a collection that deletes the history, or takes it for garbage."""
    given = [(key, ts, 97 if n == 25 else 98 if n == 35 else value) for n, (key, ts, value) in enumerate(events(40))]
    given += [("k1", at(0), 1)]
    heard, marks = list[es.Progress](), tmp_path / "marks"
    marks.mkdir()

    def job(parallelism: int, sink: Any) -> es.Pipeline:
        stage = stream.pipeline(parallelism=parallelism, retained=1).key_by("key").event_time("ts", "1 second")
        return stage.process("totals", Sabotaged(marks), TOTALS).sink(sink).listener(heard.append)

    stream.add(given[:20], given[20:])
    query = stream.start(pipeline := job(2, Kept()))
    query.processAllAvailable()
    pipeline.savepoint("one")
    query.stop()

    def broken(df: Any, batch: int) -> None:
        raise RuntimeError("the sink is full")

    stream.add(events(20))
    failing = job(3, broken)
    with query_failing(failing, UserFunctionError):
        stream.drain(failing)
    kinds = [record.kind for record in history(stream)]
    assert kinds == ["opening", "batch", "batch", "savepoint", "opening", "failure"]
    opened, first, second, saved, again, failed = history(stream)
    assert (opened.parallelism, opened.rescaled) == ({"totals": 2}, {})
    assert again.rescaled == {"totals": (2, 3)} and again.incarnation == opened.incarnation + 1
    assert (saved.savepoint, saved.checkpoint) == ("one", second.checkpoint)
    assert failed.batch == 2 and "the sink is full" in failed.failures[0].message
    assert (failed.failures[0].error, failed.failures[0].stage) == ("UserFunctionError", "totals")
    for record, progress in zip((first, second), heard, strict=True):
        assert (record.batch, record.checkpoint, record.job) == (progress.batch, progress.checkpoint, "job")
        assert (record.rows_in, record.rows_out) == (progress.rows_in, dict(progress.rows_out))
        assert record.micros.keys() == progress.seconds.keys() and record.seconds > 0
        assert [(slot.stage, slot.slot) for slot in record.slots] == [("totals", 0), ("totals", 1)]
        for name in ("rows", "late_rows", "delta_bytes", "state_bytes", "entries"):
            total = {"rows": "rows_in", "entries": "state_entries"}.get(name, name)
            assert sum(getattr(slot, name) for slot in record.slots) == getattr(progress, total), name
        assert all(slot.memory_limit >= slot.memory > 1 << 20 for slot in record.slots)
        assert all(slot.began >= record.time and 0 < slot.seconds <= record.seconds for slot in record.slots)
        assert len({slot.executor for slot in record.slots}) == 1 and ":" in record.slots[0].executor
    assert [slot.start for slot in first.slots] == ["restored"] * 2 and first.failures == ()
    assert (second.late_rows, second.watermark is not None, second.lag is not None) == (1, True, True)
    told = {one.error: one.message for one in second.failures}
    assert told.keys() == {"SlotError", "UserFunctionError"} and "this once" in told["UserFunctionError"]
    storage = LocalStorage(stream.root / "state")
    assert not any(path.startswith("history/") for path in plan_collection(storage, 1).files)
