"""Processes die, tasks fail, queries are stopped and started: the output is that of a clean run."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.errors import FencedError, LifecycleError, UserFunctionError
from emberstate.rocksdb.local_directory import reclaim
from tests.raising import raising
from tests.spark.pipeline_functions import MARKED, TOTALS, Marked, Sabotaged, Totals, Waiting, events, totals
from tests.spark.spark_session import MARK, code_folder, slot_pids, wait_for, worker_pids
from tests.spark.streams import EVENTS, Kept, Stream, wait_in

pytestmark = pytest.mark.spark


class Killer:
    """Kills one process of the session by SIGKILL, soon after it was told to."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.killed: list[str] = []
        self.threads: list[threading.Thread] = []

    def __call__(self, progress: Any) -> None:
        thread = threading.Thread(target=self._kill, args=(self.chance.random(), "sw"[len(self.threads) % 2]))
        self.threads.append(thread)
        thread.start()

    def _kill(self, moment: float, kind: str) -> None:
        threading.Event().wait(moment * 0.4)  # during the next batch, or before it
        pids = slot_pids(os.environ[MARK]) if kind == "s" else worker_pids(os.environ[MARK])
        if pids:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.chance.choice(pids), signal.SIGKILL)
                self.killed.append(kind)

    def join(self) -> None:
        """Wait until all is done."""
        for thread in self.threads:
            thread.join()


@pytest.mark.reliability(23)
@pytest.mark.parametrize("kind", ["fs", pytest.param("rocksdb", marks=pytest.mark.long)])
def test_slots_and_workers_killed_and_tasks_failing(stream: Stream, kind: str, tmp_path: Path) -> None:
    """Catches: state of an attempt that failed kept or applied twice; a slot that restores the wrong state."""
    given = [
        (key, ts, {30: 97, 70: 98, 110: 98, 150: 97}.get(n, value)) for n, (key, ts, value) in enumerate(events(200))
    ]
    kept, killer, marks = Kept(), Killer(seed=5), tmp_path / "marks"
    marks.mkdir()
    stream.add(*(given[n : n + 20] for n in range(0, 200, 20)))
    pipeline = stream.pipeline(kind).key_by("key").event_time("ts").process("totals", Sabotaged(marks), TOTALS)
    stream.drain(pipeline.sink(kept).listener(killer))
    killer.join()
    reclaim(Path(os.environ["TMPDIR"]))  # what a killed slot left is for the next one to delete, and there may be none
    assert sorted(kept.rows) == sorted(totals(given))
    assert len(list(marks.iterdir())) == 4 and set(killer.killed) == {"s", "w"}


@pytest.mark.long
@pytest.mark.reliability(23)
def test_slots_that_are_stopped_or_stuck_are_ended_and_the_batch_is_exact(stream: Stream, tmp_path: Path) -> None:
    """Catches: a query that waits for ever for a slot that is stopped or whose function does not return, and a batch
    that is not exact after that slot was ended."""
    given = [(key, ts, {25: 95, 35: 96}.get(n, value)) for n, (key, ts, value) in enumerate(events(40))]
    kept, marks = Kept(), tmp_path / "marks"
    marks.mkdir()
    stream.add(given[:20], given[20:])
    stage = stream.pipeline(slot_stall="4 seconds").key_by("key").event_time("ts")
    stream.drain(stage.process("totals", Sabotaged(marks), TOTALS).sink(kept))
    assert sorted(kept.rows) == sorted(totals(given))
    assert len(list(marks.iterdir())) == 2


def test_slots_killed_between_batches_are_restored(stream: Stream, slots: Any) -> None:
    """Catches: a death that nobody notices; progress that calls a restored slot hot."""
    given = events(60)
    kept = Kept()
    progress: list[es.Progress] = []
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(kept)
    query = stream.start(pipeline.listener(progress.append))
    for number in range(3):
        stream.add(given[number * 20 : (number + 1) * 20])
        wait_in(query, lambda: len(progress) > number, "a batch")  # noqa: B023
        if number == 1:
            for pid in (mine := slots()):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not set(mine) & set(slots()), "their end")
    query.stop()
    assert [dict(one.slots) for one in progress] == [
        {"hot": 0, "rolled back": 0, "restored": 2},
        {"hot": 2, "rolled back": 0, "restored": 0},
        {"hot": 0, "rolled back": 0, "restored": 2},
    ]
    assert sorted(kept.rows) == sorted(totals(given))


@pytest.mark.long
@pytest.mark.reliability(28)
def test_a_poison_row_is_told_and_the_fixed_function_goes_on(stream: Stream) -> None:
    """Catches: an error without the user's traceback, key and batch; state of the failed batch that survives it."""
    given = events(60)
    given[45] = (given[45][0], given[45][1], 666)
    kept = Kept()
    stream.add(*(given[n : n + 20] for n in range(0, 60, 20)))

    def made(function: Any) -> es.Pipeline:
        stage = stream.pipeline().key_by("key").event_time("ts")
        return stage.process("totals", function, TOTALS).sink(kept)

    with pytest.raises(StreamingQueryException) as caught:
        stream.drain(made(Poisoned()))
    text = str(caught.value)
    for part in ("UserFunctionError", "totals", "batch 2", given[45][0], "in digest", "ZeroDivisionError", "666"):
        assert part in text, part
    with raising(UserFunctionError, "ZeroDivisionError", batch=0):
        made(Poisoned()).run(stream.static())
    stream.drain(made(Totals()))
    assert sorted(kept.rows) == sorted(totals(given))


class Poisoned(Totals):
    """Does not like one value."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        out = list(super().process_element(row, ctx))
        self.digest(row.value)
        yield from out

    def digest(self, value: int) -> float:
        return 1 / (value - 666) if value == 666 else 1.0


@pytest.mark.long
def test_stopped_in_the_middle_of_a_batch_and_started_with_other_code(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a slot that goes on with the old code; a batch that is run twice, or not at all, after a stop."""
    given = events(40)
    gate, entered, kept = tmp_path / "gate", tmp_path / "entered", Kept()
    module = code_folder(Path(os.environ["TMPDIR"])) / "changing_code.py"
    monkeypatch.syspath_prepend(str(module.parent))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def pipeline(version: int) -> es.Pipeline:
        module.write_text(CODE.format(version=version, pad="#" * version), encoding="utf-8")
        code = importlib.import_module("changing_code")
        importlib.reload(code)
        stage = stream.pipeline().key_by("key").event_time("ts")
        return stage.process("totals", code.Versioned(gate, entered), f"{TOTALS}, version int").sink(kept)

    stream.add(given[:20])
    query = stream.start(pipeline(1))
    query.processAllAvailable()
    gate.touch()  # from here on the function waits
    stream.add(given[20:])
    try:
        wait_for(entered.exists, "the function")
        query.stop()
    finally:
        gate.unlink()
    stream.drain(pipeline(2))
    assert sorted(kept.rows) == sorted([(*row, 1 if n < 20 else 2) for n, row in enumerate(totals(given))])
    assert {batch: len(times) for batch, times in kept.deliveries.items()} == {0: 1, 1: 1}


CODE = """
import time
from tests.spark.pipeline_functions import Totals
{pad}
class Versioned(Totals):
    def __init__(self, gate, entered):
        self.gate, self.entered = gate, entered

    def process_element(self, row, ctx):
        while self.gate.exists():
            self.entered.touch()
            time.sleep(0.01)
        for out in super().process_element(row, ctx):
            yield (*out, {version})
"""


@pytest.mark.reliability(12)
def test_a_zombie_is_fenced_and_its_sink_is_not_called(spark: Any, stream: Stream, tmp_path: Path) -> None:
    """Catches: two runs of one job that both commit, or both deliver."""
    given = events(20)
    frame = spark.createDataFrame(given, EVENTS)
    gate, entered = tmp_path / "gate", tmp_path / "entered"
    gate.touch()
    late, kept = Kept(), Kept()

    def pipeline(sink: Kept) -> es.Pipeline:
        stage = stream.pipeline(parallelism=1).key_by("key").event_time("ts")  # one core for the zombie, one is free
        return stage.process("totals", Waiting(gate, entered), TOTALS).sink(sink)

    raised: list[BaseException] = []

    def zombie() -> None:
        try:
            pipeline(late)(frame, 0)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    wait_for(entered.exists, "the zombie's function")
    other = threading.Thread(target=lambda: pipeline(kept)(frame, 0))
    other.start()
    try:
        wait_for(lambda: raised, "the zombie's end")
    finally:
        gate.unlink()
        thread.join()
        other.join()
    assert isinstance(raised[0], FencedError), raised
    assert (late.deliveries, sorted(kept.rows)) == ({}, sorted(totals(given)))


@pytest.mark.reliability(12)
def test_a_zombie_that_has_committed_does_not_deliver(
    spark: Any, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: output that is delivered by a run which has lost the job between commit and sink."""
    given = events(20)
    frame = spark.createDataFrame(given, EVENTS)
    late, kept = Kept(), Kept()

    def pipeline(sink: Kept) -> es.Pipeline:
        stage = stream.pipeline().key_by("key").event_time("ts")
        return stage.process("totals", Marked(), MARKED).sink(sink)

    commit = CheckpointCoordinator.commit

    def commit_and_lose(self: CheckpointCoordinator, *arguments: Any) -> Any:
        manifest = commit(self, *arguments)
        monkeypatch.setattr(CheckpointCoordinator, "commit", commit)
        pipeline(kept)(frame, 0)
        return manifest

    monkeypatch.setattr(CheckpointCoordinator, "commit", commit_and_lose)
    with raising(FencedError, path="claims/000002", expected=1, found=2):
        pipeline(late)(frame, 0)
    assert late.deliveries == {}
    assert sorted(row[:3] for row in kept.rows) == sorted(totals(given))


@pytest.mark.long
def test_a_call_of_a_stopped_query_takes_nothing_over(stream: Stream) -> None:
    """Catches: a late callback of a query's former run that takes the job from the present one."""
    kept = Kept()
    pipeline = stream.pipeline().key_by("key").event_time("ts").process("totals", Totals(), TOTALS).sink(kept)
    given = events(30)
    raised: list[BaseException] = []
    calls: list[Any] = []

    def call(df: Any, batch: int) -> None:
        calls.append(df.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id"))
        if len(set(calls)) == 2 and len(calls) == 2:  # pretend to be the former run
            context = df.sparkSession.sparkContext
            context.setLocalProperty("spark.jobGroup.id", calls[0])
            try:
                pipeline(df, batch)
            except LifecycleError as error:
                raised.append(error)
            finally:
                context.setLocalProperty("spark.jobGroup.id", calls[1])
        pipeline(df, batch)

    def drain() -> None:
        writer = stream.read().writeStream.foreachBatch(call).option("checkpointLocation", stream.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    stream.add(given[:15])
    drain()
    stream.add(given[15:])
    drain()
    assert len(raised) == 1 and "was stopped" in str(raised[0])
    assert sorted(kept.rows) == sorted(totals(given))


@pytest.mark.long
def test_bases_are_written_beside_the_batches_and_restored_from(stream: Stream, slots: Any) -> None:
    """Catches: chains that only grow; a base that is not what the deltas below it were."""
    given = events(600)
    kept = Kept()
    policy = ChainPolicy(most_files=6, rewrite_at=2, base_ratio=0.1, small_bytes=1)
    stage = stream.pipeline(policy=policy).key_by("key").event_time("ts")
    pipeline = stage.process("totals", Totals(), TOTALS).sink(kept)
    stream.add(*(given[n : n + 40] for n in range(0, 400, 40)))
    stream.drain(pipeline)
    storage = stream.backend().open_storage()
    manifest = read_checkpoint(storage, max(checkpoint_numbers(storage)))
    kinds = [[file.kind for file in slot.files] for slot in manifest.operators[0].slots]
    assert all(files[0] == "base" and len(files) <= 6 for files in kinds), kinds
    for pid in slots():
        os.kill(pid, signal.SIGKILL)
    stream.add(given[400:])
    stream.drain(pipeline)
    assert sorted(kept.rows) == sorted(totals(given))
