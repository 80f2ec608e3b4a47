"""`StageRun`: the slots' answers of one stage in one batch, and their sums for `Progress` and the commit.

Thread safety: immutable values, pure functions.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.read.sizes import stored_bytes
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.operator.runner import TIMER_QUEUES
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.times import from_micros
from emberstate.spark.driver.watermark import holding_back
from emberstate.spark.plan.pipeline import PipelinePlan
from emberstate.spark.progress import Progress
from emberstate.spark.slot.messages import SlotAnswer

#: The parts of a batch's time, and which of a slot's parts they consist of.
_SLOT_PARTS: Final = {
    "transport": ("transport",),
    "user": ("user",),
    "snapshot": ("start",),
    "state": ("state", "gc"),
    "delta": ("prepare",),
    "output": ("output",),
}
_COUNTER: Final = "counter/"
#: The slots' name of the number of their processing-time timers.
_WAITING_TIMERS: Final = f"backend/timers/{TIMER_QUEUES[TimeDomain.PROCESSING]}/timers"


@dataclasses.dataclass(frozen=True, slots=True)
class StageRun:
    """The answers of a stage, and how long it took."""

    seconds: float
    answers: Sequence[SlotAnswer]
    acknowledgements: Sequence[Acknowledgement]  # of the keyed states, by slot


def starts(runs: Iterable[StageRun]) -> dict[str, int]:
    """Slots by how they got their state."""
    how = Counter(answer.start for run in runs for answer in run.answers)
    hot = how.pop("promoted", 0) + how.pop("hot", 0)
    return {"hot": hot, "rolled back": how["rolled back"], "restored": how["restored"]}


def slot_seconds(runs: Sequence[StageRun]) -> dict[str, float]:
    """The parts of the stages' time."""
    parts = dict.fromkeys(("spark", *_SLOT_PARTS), 0.0)
    for run in runs:
        count = max(1, len(run.answers))
        for part, names in _SLOT_PARTS.items():
            parts[part] += sum(answer.micros.get(name, 0) for answer in run.answers for name in names) / count / 1e6
        total = sum(answer.micros.get("total", 0) for answer in run.answers) / count / 1e6
        parts["spark"] += max(0.0, run.seconds - total)
    return parts


def waiting_timers(runs: Sequence[StageRun]) -> int:
    """Processing-time timers that wait."""
    return sum(one.get(_WAITING_TIMERS, 0) for one in _statistics(runs))


def _statistics(runs: Sequence[StageRun]) -> list[Mapping[str, int]]:
    return [answer.statistics for run in runs for answer in run.answers]


def counts(runs: Sequence[StageRun]) -> Counter[str]:
    """The counters of all stages; `rows` of the first one only."""
    total: Counter[str] = Counter()
    for number, run in enumerate(runs):
        for acknowledgement in run.acknowledgements:
            total.update({k: v for k, v in acknowledgement.counts.items() if number == 0 or k != "rows"})
    return total


def user_counters(total: Mapping[str, int]) -> dict[str, int]:
    """The counters of functions."""
    return {name.removeprefix(_COUNTER): value for name, value in total.items() if name.startswith(_COUNTER)}


def commit_micros(runs: Sequence[StageRun]) -> dict[str, int]:
    """The times of the slowest slots that a manifest records: preparing, and the rewrites that came with it."""
    prepared = [answer.micros.get("prepare", 0) for run in runs for answer in run.answers]
    rewritten = [
        answer.statistics.get("rewrites/last_micros", 0)
        for run in runs
        for answer, acknowledgement in zip(run.answers, run.acknowledgements, strict=True)
        if acknowledgement.rewrite is not None
    ]
    found = {"sync": max(prepared, default=0)}
    return {**found, "async": max(rewritten)} if rewritten else found


def progress_of(
    plan: PipelinePlan,
    manifest: Manifest,
    batch: int,
    runs: Sequence[StageRun],
    *,
    redelivered: bool,
    seconds: Mapping[str, float],
) -> Progress:
    """The progress of a batch that is committed and delivered."""
    total, ran = counts(runs), manifest.batch
    statistics = _statistics(runs)
    background = max((one.get("rewrites/last_micros", 0) / 1e6 for one in statistics), default=0.0)
    last = plan.stages[-1].name
    rows_out: dict[str, int] = {}
    for output in manifest.outputs:
        if output.name != MAIN or output.operator == last:
            rows_out[output.name] = rows_out.get(output.name, 0) + output.rows
    return Progress(
        pipeline=plan.name,
        batch=batch,
        checkpoint=manifest.number,
        redelivered=redelivered,
        rows_in=total["rows"],
        rows_out=rows_out,
        late_rows=total["late_rows"],
        late_rows_dropped=total["late_rows_dropped"],
        null_keys=total["null_keys"],
        timers_fired=total["timers_fired"],
        slots=starts(runs),
        state_entries=sum(one.get("backend/entries", 0) for one in statistics),
        state_bytes=stored_bytes(manifest.operators),
        delta_bytes=total["delta_bytes"],
        watermark=None if ran is None or ran.watermark is None else from_micros(ran.watermark),
        watermark_held_by=None if ran is None else holding_back(plan, ran),
        counters=user_counters(total),
        seconds={**seconds, "background": background},
    )
