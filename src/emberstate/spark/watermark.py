"""How far event time has got: the watermark that the next batch begins with.

It is what the rows of all committed batches say, `out_of_orderness` behind the latest of them. After `idle_timeout`
without rows it goes on at the pace of the clock, from where it was.

Both follow from the last committed batch alone, so a restart changes nothing. Time counts as idle only once a batch has
come that found no rows: rows that waited for a slow sink, or for a driver to come back, are not overtaken.

A stage after the one that event time comes from handles in batch n its rows before a watermark of its own, that of the
stage before it less its own `out_of_orderness`, and its timers up to it. What comes to it in later batches was put out
by timers and rows at or after that watermark of the stage before, so nothing is late but what was stamped older than
its out-of-orderness allows.

Thread safety: pure functions.
"""

from __future__ import annotations

from emberstate.checkpoint.manifest import Batch, Idle
from emberstate.runtime.times import MAX_TIME
from emberstate.spark.pipeline_plan import PipelinePlan
from emberstate.state.durations import as_micros


def next_watermark(plan: PipelinePlan, last: Batch | None) -> int | None:
    """The watermark of the batch after `last`; None if no row has said anything yet."""
    idle = idle_since(plan, last)
    if idle is None:
        return None
    assert last is not None and plan.event_time_stage is not None
    timeout = plan.stages[plan.event_time_stage].idle_timeout
    passed = last.processing_time - idle.since
    if timeout is None or passed < as_micros(timeout, "idle_timeout"):
        return idle.watermark
    return min(idle.watermark + passed, MAX_TIME)


def idle_since(plan: PipelinePlan, last: Batch | None) -> Idle | None:
    """Since when no row has come, should the batch after `last` have none; None if none ever came."""
    if plan.event_time_stage is None or last is None or last.max_event_time is None:
        return None
    stage = plan.stages[plan.event_time_stage]
    reached = last.max_event_time - as_micros(stage.out_of_orderness, "out_of_orderness")
    if last.idle is not None:
        return Idle(last.idle.since, max(reached, last.idle.watermark))
    return Idle(last.processing_time, reached if last.watermark is None else max(reached, last.watermark))


def stage_watermarks(plan: PipelinePlan, last: Batch | None, batch: Batch) -> dict[str, tuple[int | None, int]]:
    """Of every stage after the one that event time comes from: where it begins `batch`, and where it is at its end.

    It never goes back: not even if another out-of-orderness was declared since `last`.
    """
    found: dict[str, tuple[int | None, int]] = {}
    if plan.event_time_stage is None or batch.watermark is None:
        return found
    reached = batch.watermark
    for stage in plan.stages[plan.event_time_stage + 1 :]:
        before = None if last is None else last.watermark  # where earlier versions had all stages at the end of a batch
        if last is not None and last.stage_watermarks is not None:
            before = last.stage_watermarks.get(stage.name)
        if stage.has_event_time:
            reached -= as_micros(stage.out_of_orderness, "out_of_orderness")
        reached = reached if before is None else max(reached, before)
        found[stage.name] = before, reached
    return found
