"""Records of the history, from what a driver knows of a batch.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from emberstate.checkpoint.history.model import (
    MAX_ERROR,
    MAX_NAMES,
    MAX_SLOTS,
    FailureRecord,
    HistoryRecord,
    SlotRecord,
)
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.errors import EmberstateError
from emberstate.runtime.operator.runner import TIMER_QUEUES
from emberstate.spark.driver.stage_run import StageRun
from emberstate.spark.progress import Progress
from emberstate.spark.slot.failure import one_line

_TIMERS: Final = tuple(f"backend/timers/{queue}/timers" for queue in TIMER_QUEUES.values())
_LARGEST: Final = 2**62


def batch_record(
    progress: Progress,
    manifest: Manifest,
    runs: Sequence[StageRun],
    stages: Sequence[str],
    began: int,
    failures: Sequence[FailureRecord],
) -> HistoryRecord:
    """The record of a batch that began at `began`, in microseconds since 1970."""
    ran = manifest.batch
    watermark = None if ran is None else ran.watermark
    slots = [one for run, stage in zip(runs, stages, strict=False) for one in _slots(run, stage, manifest)]
    if len(slots) > MAX_SLOTS:
        slots = sorted(slots, key=lambda slot: -slot.seconds)[:MAX_SLOTS]
    return HistoryRecord(
        kind="redelivery" if progress.redelivered else "batch",
        job=progress.pipeline,
        time=began,
        batch=progress.batch,
        checkpoint=progress.checkpoint,
        micros={part: max(0, int(seconds * 1e6)) for part, seconds in progress.seconds.items()},
        rows_in=progress.rows_in,
        rows_out=_counts(progress.rows_out),
        late_rows=progress.late_rows,
        late_rows_dropped=progress.late_rows_dropped,
        null_keys=progress.null_keys,
        timers_fired=progress.timers_fired,
        watermark=watermark,
        lag=None if ran is None or watermark is None else ran.processing_time - watermark,
        state_entries=progress.state_entries,
        state_bytes=progress.state_bytes,
        delta_bytes=progress.delta_bytes,
        counters=_counts(progress.counters),
        slots=tuple(slots),
        failures=tuple(failures),
    )


def failure_record(job: str, batch: int, began: int, error: BaseException) -> HistoryRecord:
    """The record of a batch that failed."""
    place = error.place if isinstance(error, EmberstateError) else {}
    stage, slot = place.get("operator"), place.get("slot")
    said = one_line(error).encode(errors="replace").decode()
    failure = FailureRecord(
        error=type(error).__name__[:200],
        message=said[:MAX_ERROR],
        stage=stage if isinstance(stage, str) else "",
        slot=slot if isinstance(slot, int) else None,
    )
    return HistoryRecord(kind="failure", job=job, time=began, batch=batch, failures=(failure,))


def opening_record(manifest: Manifest, before: Manifest | None) -> HistoryRecord:
    """The record of a start."""
    return HistoryRecord(
        kind="opening",
        job=manifest.job,
        time=manifest.created,
        batch=None if manifest.batch is None else manifest.batch.id,
        checkpoint=manifest.number,
        parallelism=_parallelism(manifest),
        parallelism_before={} if before is None else _parallelism(before),
    )


def _parallelism(manifest: Manifest) -> dict[str, int]:
    return _counts({operator.name: operator.parallelism for operator in manifest.operators})


def _slots(run: StageRun, stage: str, manifest: Manifest) -> list[SlotRecord]:
    operator = manifest.operator(stage)
    chains = () if operator is None else operator.slots
    return [
        SlotRecord(
            stage=stage,
            slot=number,
            executor=answer.executor[:200],
            start="hot" if answer.start == "promoted" else answer.start,  # type: ignore[arg-type]
            began=answer.began,
            micros=answer.micros,
            rows=acknowledgement.counts.get("rows", 0),
            late_rows=acknowledgement.counts.get("late_rows", 0),
            timers_fired=acknowledgement.counts.get("timers_fired", 0),
            timers=sum(answer.statistics.get(name, 0) for name in _TIMERS),
            entries=answer.statistics.get("backend/entries", 0),
            state_bytes=sum(file.place.size for file in chains[number].files) if number < len(chains) else 0,
            delta_bytes=acknowledgement.counts.get("delta_bytes", 0),
            memory=answer.statistics.get("rss_bytes", 0),
            memory_limit=answer.statistics.get("memory_limit_bytes", 0),
        )
        for number, (answer, acknowledgement) in enumerate(zip(run.answers, run.acknowledgements, strict=True))
    ]


def _counts(found: Mapping[str, int]) -> dict[str, int]:
    """As many as a record keeps, with names and values that it can hold."""
    some = list(found.items())[:MAX_NAMES]
    return {name[:500] or "?": max(-_LARGEST, min(value, _LARGEST)) for name, value in some}
