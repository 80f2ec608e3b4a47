"""How the next watermark follows from the last batch. Without Spark: it is a function of what is stored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.manifest.model import Batch, Idle, InputTime
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import ManualClock
from emberstate.keygroups import KeySchema
from emberstate.spark.driver.watermark import holding_back, idle_since, leaves_time, next_watermark, stage_watermarks
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.storage.memory import MemoryStorage
from tests.spark.pipeline_functions import BURSTS, Bursts

SECOND = 1_000_000


def plan(**event_time: Any) -> PipelinePlan:
    """A pipeline with event time."""
    stage = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").event_time("ts", **event_time)
    return stage.process("bursts", Bursts(), BURSTS)._plan


def batch(at: float, watermark: float | None, latest: float | None, idle: tuple[float, float] | None = None) -> Batch:
    """A committed batch, in seconds."""
    known, greatest = (None if value is None else round(value * SECOND) for value in (watermark, latest))
    since = None if idle is None else Idle(*(round(value * SECOND) for value in idle))
    return Batch(1, "q", "s", round(at * SECOND), known, greatest, since)


class Clocked:
    """The coordinator of one operator without slots' work: a batch is what its rows say of event time."""

    def __init__(self, given: PipelinePlan) -> None:
        self.plan, self.clock, self.storage = given, ManualClock(0), MemoryStorage()
        self.restart()

    def restart(self) -> None:
        """A new driver."""
        spec = OperatorSpec(name="bursts", key_schema=KeySchema.from_python(str), parallelism=1)
        self.coordinator = CheckpointCoordinator.open(self.storage, "job", [spec], clock=self.clock)
        last = self.coordinator.latest.batch
        self.number = 0 if last is None else last.id + 1

    def batch(self, at: float, latest: float | None = None) -> float | None:
        """A batch at that time, with rows up to `latest`; the watermark that it began with."""
        self.clock.set(round(at * SECOND))
        last = self.coordinator.latest.batch
        begun = self.coordinator.begin(
            self.number, query="q", source=str(self.number), watermark=next_watermark(self.plan, last),
            idle=idle_since(self.plan, last),
        )  # fmt: skip
        assert isinstance(begun, Transaction)
        self.coordinator.commit(begun, [acknowledged(begun, latest)])
        self.number += 1
        watermark = begun.batch.watermark
        return None if watermark is None else watermark / SECOND


def acknowledged(begun: Transaction, latest: float | None) -> Any:
    """What the one slot says."""
    from emberstate.checkpoint.commit.messages import Acknowledgement

    task = begun.tasks[0]
    return Acknowledgement(
        operator=task.operator, slot=0, number=task.number, attempt=f"a{task.number}", started_from=task.chain.attempt,
        max_event_time=None if latest is None else round(latest * SECOND),
    )  # fmt: skip


@pytest.mark.parametrize("restarts", [False, True])
def test_an_idle_watermark_goes_on_over_restarts(restarts: bool) -> None:
    """Catches: a restart that forgets since when no row has come; one that counts rows which waited for it as late."""
    job = Clocked(plan(out_of_orderness="10 seconds", idle_timeout="30 seconds"))
    script = [
        # at, latest row, watermark at the beginning
        (0, 100, None),
        (20, None, 90),
        (40, None, 90),
        (60, None, 130),  # 40 seconds idle were seen to be so by the batch before
        (3000, None, 150),
        (3010, None, 90 + 3000),
        (9000, 3200, 90 + 3010),  # had nobody looked for rows for long, they are not late
        (9010, None, 3190),
        (9020, None, 3190),
    ]
    for at, latest, expected in script:
        assert job.batch(at, latest) == expected, at
        if restarts:
            job.restart()


def test_a_late_row_does_not_stop_an_idle_watermark_for_good() -> None:
    """Catches: idle time that is counted from the latest row's time, though the watermark is far beyond it."""
    job = Clocked(plan(idle_timeout="30 seconds"))
    for at, latest, expected in [
        (0, 100, None), (600, None, 100), (610, None, 700), (620, 101, 710),
        (640, None, 710), (660, None, 710), (670, None, 710 + 40),
    ]:  # fmt: skip
        assert job.batch(at, latest) == expected, at


def test_an_old_checkpoint_goes_on_from_its_watermark() -> None:
    """Catches: a job of an earlier version, idle for long, whose watermark stands still after the update."""
    given = plan(out_of_orderness="10 seconds", idle_timeout="30 seconds")
    last = batch(3000, 3090, 100)
    assert next_watermark(given, last) == 3090 * SECOND
    idle = idle_since(given, last)
    assert idle == Idle(3000 * SECOND, 3090 * SECOND)
    after = msgspec.structs.replace(batch(3060, 3090, 100), idle=idle)
    assert next_watermark(given, after) == (3090 + 60) * SECOND


def test_what_says_nothing_about_time() -> None:
    """Catches: a watermark without rows or event time; one that stands still after a shorter out-of-orderness."""
    given = plan(out_of_orderness="10 seconds")
    assert next_watermark(given, None) is None
    assert next_watermark(given, batch(5, None, None)) is None
    assert next_watermark(given, batch(5, None, 100)) == 90 * SECOND
    assert next_watermark(given, batch(5000, 90, 100, (0, 90))) == 90 * SECOND
    untimed = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").process("b", Bursts(), BURSTS)._plan
    assert next_watermark(untimed, batch(5, None, 100)) is None
    assert next_watermark(plan(), batch(5, 90, 100, (0, 90))) == 100 * SECOND


class Both(es.KeyedCoProcessFunction):
    """Takes two inputs."""

    def process_element1(self, row: Any, ctx: Any) -> None:
        pass

    def process_element2(self, row: Any, ctx: Any) -> None:
        pass


def two(**of_second: Any) -> PipelinePlan:
    """A pipeline with two inputs, the first of which may be 2 seconds out of order."""
    stage = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").event_time("ts", "2 seconds")
    return stage.connect("slow", "key", event_time="ts", **of_second).process("both", Both(), "n int")._plan


def at_times(now: float, *inputs: tuple[float, float | None]) -> Batch:
    """A batch of two inputs: of each the last time it had rows, and its latest time; in seconds."""
    times = [
        InputTime(round(since * SECOND), None if latest is None else round(latest * SECOND)) for since, latest in inputs
    ]
    latest = max((one.max_event_time for one in times if one.max_event_time is not None), default=None)
    return Batch(1, "q", "s", round(now * SECOND), None, latest, inputs=tuple(times))


@pytest.mark.parametrize(
    ("of_second", "last", "expected", "held"),
    [
        ({}, at_times(9, (9, 100), (9, 50)), 48, "slow"),
        ({}, at_times(9, (9, 20), (9, 50)), 18, "first"),
        ({}, at_times(9, (9, 50), (9, 50)), 48, None),
        ({"out_of_orderness": "10 seconds"}, at_times(9, (9, 50), (9, 57)), 47, "slow"),
        ({}, at_times(9, (9, 100), (1, None)), None, "slow"),
        ({"idle_timeout": "5 seconds"}, at_times(9, (9, 100), (5, None)), None, "slow"),
        ({"idle_timeout": "5 seconds"}, at_times(9, (9, 100), (4, None)), 98, None),
        ({"idle_timeout": "5 seconds"}, at_times(9, (9, 100), (4, 50)), 98, None),
        ({}, Batch(1, "q", "s", 9 * SECOND, None, 30 * SECOND), 28, None),  # of before inputs were told apart
    ],
)
def test_of_two_inputs_the_one_behind_counts(
    of_second: dict[str, Any], last: Batch, expected: float | None, held: str | None
) -> None:
    """Catches: a faster input that makes the other's rows late, or an idle one that holds time back for ever."""
    found = next_watermark(two(**of_second), last)
    assert (None if found is None else found / SECOND) == expected
    assert holding_back(two(**of_second), last) == held


def test_later_stages_never_go_back() -> None:
    """Catches: a watermark of a stage that another out-of-orderness, or an older version's checkpoint, sets back."""

    def plan(allowed: str) -> PipelinePlan:
        start = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").event_time("ts")
        first = start.process("a", Bursts(), BURSTS)
        second = first.key_by("key").event_time("last", allowed).process("b", Bursts(), BURSTS)
        return second.key_by("key").event_time("last", "1 second").process("c", Bursts(), BURSTS)._plan

    def seconds(last: Batch | None, allowed: str) -> list[Any]:
        found = stage_watermarks(plan(allowed), last, batch(9, 100, None))
        return [tuple(None if one is None else one / SECOND for one in found[name]) for name in ("b", "c")]

    assert seconds(None, "5 seconds") == [(None, 95), (None, 94)]
    known = msgspec.structs.replace(batch(8, 90, None), stage_watermarks={"b": 98 * SECOND, "c": 80 * SECOND})
    assert seconds(known, "5 seconds") == [(98, 98), (80, 97)]
    assert seconds(batch(8, 99, None), "5 seconds") == [(99, 99), (99, 99)], "all stages were where the first was"


def test_time_that_is_left_at_the_end() -> None:
    """Catches: a closing batch that is missing, or one after the other for ever since the clock goes on."""
    given = plan(out_of_orderness="10 seconds", idle_timeout="30 seconds")
    assert not leaves_time(given, None)
    assert not leaves_time(given, batch(5, None, None))
    assert leaves_time(given, batch(5, None, 100))
    assert leaves_time(given, batch(5, 80, 100))
    assert not leaves_time(given, batch(6, 90, 100, (5, 90)))
    assert not leaves_time(given, batch(600, 90, 100, (5, 90))), "idle time alone"
    assert not leaves_time(given, batch(600, 685, 101)), "a late row"
