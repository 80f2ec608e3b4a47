"""The watermark: how far event time is when the next batch begins.

It follows the latest row of all committed batches by `out_of_orderness`. Of two inputs, each with its own
out-of-orderness, the one that is behind decides; an input without any row yet holds the watermark back altogether. An
input without rows for its `idle_timeout` does not count. After `idle_timeout` without rows of any input the watermark
advances at the pace of the clock, from where it was.

Both follow from the last committed batch alone, so a restart changes nothing. Time counts as idle only after a batch
that found no rows: rows that waited for a slow sink, or for a driver to come back, do not become late.

A stage after the one with event time has a watermark of its own in batch n: that of the stage before less its own
`out_of_orderness`. It handles its rows before that watermark, and its timers up to it. What it gets in later batches
was emitted by rows and timers at or after that watermark of the stage before, so a row is late only if it was stamped
older than the out-of-orderness allows.

Thread safety: pure functions.
"""

from __future__ import annotations

from typing import NamedTuple

from emberstate.checkpoint.manifest.model import Batch, Idle, InputTime
from emberstate.runtime.rows.times import MAX_TIME, MIN_TIME
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.plan.stage import KeyedStagePlan
from emberstate.units import as_micros


def next_watermark(plan: PipelinePlan, last: Batch | None) -> int | None:
    """The watermark of the batch after `last`; None before the first row."""
    idle = idle_since(plan, last)
    if idle is None:
        return None
    assert last is not None and plan.event_time_stage is not None
    timeouts = [input.idle_timeout for input in _inputs(plan.stages[plan.event_time_stage])]
    passed = last.processing_time - idle.since
    if any(timeout is None or passed < timeout for timeout in timeouts):
        return idle.watermark
    return min(idle.watermark + passed, MAX_TIME)


def idle_since(plan: PipelinePlan, last: Batch | None) -> Idle | None:
    """Since when no row has come, if the batch after `last` has none; None before the first row."""
    if plan.event_time_stage is None or last is None:
        return None
    reached = min((MIN_TIME if one is None else one for one in _reached(plan, last).values()), default=MIN_TIME)
    if reached == MIN_TIME:
        return None
    if last.idle is not None:
        return Idle(last.idle.since, max(reached, last.idle.watermark))
    return Idle(last.processing_time, reached if last.watermark is None else max(reached, last.watermark))


def leaves_time(plan: PipelinePlan, last: Batch | None) -> bool:
    """Whether the rows up to the last batch would advance event time in a batch after it.

    The clock does not count: by the clock there would always be one more.
    """
    idle = idle_since(plan, last)
    return idle is not None and (last is None or last.watermark is None or idle.watermark > last.watermark)


def holding_back(plan: PipelinePlan, last: Batch) -> str | None:
    """The one of two inputs that is behind, and so decides the next watermark; None if neither is.

    The first is named "first", the other has its own name.
    """
    reached = {} if plan.event_time_stage is None else _reached(plan, last)
    by_time = sorted(reached, key=lambda name: MIN_TIME if reached[name] is None else reached[name])  # type: ignore[arg-type, return-value]
    return by_time[0] if len(by_time) > 1 and reached[by_time[0]] != reached[by_time[1]] else None


class _Input(NamedTuple):
    name: str
    lag: int
    idle_timeout: int | None


def _inputs(stage: KeyedStagePlan) -> list[_Input]:
    """The inputs of the stage with event time; the second defaults to the settings of the first."""
    lag, timeout = stage.out_of_orderness, stage.idle_timeout
    found = [("first", lag, timeout)]
    if stage.second is not None:
        name, plan = stage.second
        found.append(
            (
                name,
                lag if plan.out_of_orderness is None else plan.out_of_orderness,
                timeout if plan.idle_timeout is None else plan.idle_timeout,
            )
        )
    return [
        _Input(name, as_micros(one, "out_of_orderness"), None if idle is None else as_micros(idle, "idle_timeout"))
        for name, one, idle in found
    ]


def _reached(plan: PipelinePlan, last: Batch) -> dict[str, int | None]:
    """The watermark of each input that counts after `last`, None if it has had no row. Of two inputs those count that
    are not idle, or both if both are."""
    assert plan.event_time_stage is not None
    stage = plan.stages[plan.event_time_stage]
    inputs = _inputs(stage)
    one = (InputTime(last.processing_time, last.max_event_time),)
    pairs = list(zip(inputs, last.of_inputs(2) if len(inputs) == 2 else one, strict=True))
    counting = [
        (input, time)
        for input, time in pairs
        if input.idle_timeout is None or last.processing_time - time.since < input.idle_timeout
    ]
    return {
        input.name: None if time.max_event_time is None else time.max_event_time - input.lag
        for input, time in counting or pairs
    }


def stage_watermarks(plan: PipelinePlan, last: Batch | None, batch: Batch) -> dict[str, tuple[int | None, int]]:
    """The watermarks of every stage after the one with event time: where it begins `batch`, and where it ends.

    A watermark never goes back, not even if another out-of-orderness was declared since `last`.
    """
    found: dict[str, tuple[int | None, int]] = {}
    if plan.event_time_stage is None or batch.watermark is None:
        return found
    reached = batch.watermark
    for stage in plan.stages[plan.event_time_stage + 1 :]:
        before = None if last is None else last.watermark  # manifests of earlier versions: one watermark for all stages
        if last is not None and last.stage_watermarks is not None:
            before = last.stage_watermarks.get(stage.name)
        if stage.has_event_time:
            reached -= as_micros(stage.out_of_orderness, "out_of_orderness")
        reached = reached if before is None else max(reached, before)
        found[stage.name] = before, reached
    return found
