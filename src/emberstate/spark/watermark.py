"""How far event time has got: the watermark that the next batch begins with.

It is what the rows of all committed batches say, `out_of_orderness` behind the latest of them; after `idle_timeout`
without rows it goes on at the pace of the clock. That it never goes back is the coordinator's doing.

Thread safety: a pure function.
"""

from __future__ import annotations

from emberstate.checkpoint.manifest import Batch
from emberstate.spark.pipeline_plan import PipelinePlan
from emberstate.state.durations import as_micros


def next_watermark(plan: PipelinePlan, last: Batch | None, rows_at: int, now: int) -> int | None:
    """The watermark of the batch after `last`; None if no row has said anything yet.

    `rows_at` is the processing time of the last batch that had rows, `now` the time at which the next one begins.
    """
    number = plan.event_time_stage
    if number is None or last is None or last.max_event_time is None:
        return None
    stage = plan.stages[number]
    watermark = last.max_event_time - as_micros(stage.out_of_orderness, "out_of_orderness")
    if stage.idle_timeout is not None and now - rows_at >= as_micros(stage.idle_timeout, "idle_timeout"):
        watermark += now - rows_at
    return watermark
