"""The metrics: names, kinds and labels, which stay as they are, and how a record of the history changes them.

A `Recorder` hands changes on to a library. Counters begin at 0 with the driver's process.

Thread safety: pure functions; a recorder as it says.
"""

from __future__ import annotations

import abc
import dataclasses
from collections import Counter
from typing import Final, Literal

from emberstate.checkpoint.history.model import HistoryRecord, SlotRecord
from emberstate.errors import InstallationError

#: Slots of a stage that have series of their own: 0 to 255. Sums and histograms count all of them.
MAX_SLOTS: Final = 256
#: Upper bounds of the histograms, in seconds.
BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_JOB: Final = ("job",)
_STAGE: Final = ("job", "stage")
_SLOT: Final = ("job", "stage", "slot")


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its kind, its labels, and what it is."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str


METRICS: Final = {
    "emberstate_batches_total": Metric("counter", _JOB, "batches committed and delivered"),
    "emberstate_redeliveries_total": Metric("counter", _JOB, "batches that had committed before, delivered again"),
    "emberstate_failures_total": Metric("counter", _JOB, "batches that failed"),
    "emberstate_retries_total": Metric("counter", _STAGE, "attempts of tasks that failed, and that Spark repeated"),
    "emberstate_openings_total": Metric("counter", _JOB, "starts of the job"),
    "emberstate_savepoints_total": Metric("counter", _JOB, "savepoints that the job made"),
    "emberstate_rows_in_total": Metric("counter", _JOB, "rows of the input"),
    "emberstate_rows_out_total": Metric("counter", ("job", "output"), "rows of each output"),
    "emberstate_late_rows_total": Metric("counter", _JOB, "rows behind the watermark"),
    "emberstate_late_rows_dropped_total": Metric("counter", _JOB, "those of them that reached no method"),
    "emberstate_null_keys_total": Metric("counter", _JOB, "rows dropped for a null in their key"),
    "emberstate_timers_fired_total": Metric("counter", _JOB, "timers that fired"),
    "emberstate_delta_bytes_total": Metric("counter", _JOB, "bytes of state that batches wrote"),
    "emberstate_part_seconds_total": Metric("counter", ("job", "part"), "time of batches by part, as in Progress"),
    "emberstate_slot_starts_total": Metric(
        "counter", ("job", "stage", "how"), "slots by how they got their state: hot, rolled back, restored"
    ),
    "emberstate_slot_rows_total": Metric("counter", _SLOT, "rows of a slot"),
    "emberstate_last_commit_timestamp_seconds": Metric("gauge", _JOB, "when the last batch was done, or the start"),
    "emberstate_last_batch": Metric("gauge", _JOB, "the number of the last batch"),
    "emberstate_watermark_timestamp_seconds": Metric("gauge", _JOB, "the watermark; without event time no series"),
    "emberstate_watermark_lag_seconds": Metric("gauge", _JOB, "how far the watermark is behind the clock"),
    "emberstate_state_entries": Metric("gauge", _JOB, "entries of state"),
    "emberstate_state_bytes": Metric("gauge", _JOB, "stored size of the state"),
    "emberstate_batch_delta_bytes": Metric("gauge", _JOB, "bytes of state that the last batch wrote"),
    "emberstate_slot_seconds": Metric("gauge", _SLOT, "how long the slot worked in the last batch"),
    "emberstate_slot_entries": Metric("gauge", _SLOT, "entries of the slot's state"),
    "emberstate_slot_state_bytes": Metric("gauge", _SLOT, "stored size of the slot's state"),
    "emberstate_slot_timers": Metric("gauge", _SLOT, "timers of the slot that wait"),
    "emberstate_slot_memory_bytes": Metric("gauge", _SLOT, "resident memory of the slot's process"),
    "emberstate_slot_memory_ratio": Metric(
        "gauge", _SLOT, "memory of all slots of its executor, relative to that of its machine or container"
    ),
    "emberstate_batch_seconds": Metric("histogram", _JOB, "how long batches took"),
    "emberstate_slot_batch_seconds": Metric("histogram", _STAGE, "how long slots worked in a batch"),
    "emberstate_restore_seconds": Metric("histogram", _STAGE, "how long slots took to restore their state"),
}


class Recorder(abc.ABC):
    """Where changes go. `labels` are the values of the metric's labels, in their order."""

    @abc.abstractmethod
    def count(self, name: str, amount: float, *labels: str) -> None:
        """Add to a counter."""

    @abc.abstractmethod
    def put(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""

    @abc.abstractmethod
    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram."""


def record_metrics(record: HistoryRecord, to: Recorder) -> None:
    """Hand the changes of one record on."""
    job = record.job
    if record.kind == "batch":
        _batch(record, to)
    elif record.kind == "redelivery":
        to.count("emberstate_redeliveries_total", 1, job)
    elif record.kind == "failure":
        to.count("emberstate_failures_total", 1, job)
    elif record.kind == "savepoint":
        to.count("emberstate_savepoints_total", 1, job)
    else:
        # What alerts look at is there from the start: a series that begins with its first event shows no increase.
        to.count("emberstate_openings_total", 1, job)
        to.put("emberstate_last_commit_timestamp_seconds", record.time / 1e6, job)
        for name in ("batches", "failures", "redeliveries", "savepoints"):
            to.count(f"emberstate_{name}_total", 0, job)
        for stage in record.parallelism:
            to.count("emberstate_retries_total", 0, job, stage)
            to.count("emberstate_slot_starts_total", 0, job, stage, "restored")


def _batch(record: HistoryRecord, to: Recorder) -> None:
    job = record.job
    to.count("emberstate_batches_total", 1, job)
    to.put("emberstate_last_commit_timestamp_seconds", record.time / 1e6 + record.seconds, job)
    to.put("emberstate_last_batch", record.batch or 0, job)
    to.observe("emberstate_batch_seconds", record.seconds, job)
    for name in ("rows_in", "late_rows", "late_rows_dropped", "null_keys", "timers_fired", "delta_bytes"):
        to.count(f"emberstate_{name}_total", getattr(record, name), job)
    for output, rows in record.rows_out.items():
        to.count("emberstate_rows_out_total", rows, job, output)
    for part, micros in record.micros.items():
        if part not in ("total", "background"):
            to.count("emberstate_part_seconds_total", micros / 1e6, job, part)
    if record.watermark is not None and record.lag is not None:
        to.put("emberstate_watermark_timestamp_seconds", record.watermark / 1e6, job)
        to.put("emberstate_watermark_lag_seconds", record.lag / 1e6, job)
    to.put("emberstate_state_entries", record.state_entries, job)
    to.put("emberstate_state_bytes", record.state_bytes, job)
    to.put("emberstate_batch_delta_bytes", record.delta_bytes, job)
    for failure in record.failures:
        to.count("emberstate_retries_total", 1, job, failure.stage)
    memory: Counter[str] = Counter()
    for slot in record.slots:
        memory[slot.executor] += slot.memory
    for slot in record.slots:
        _slot(job, slot, memory[slot.executor], to)


def _slot(job: str, slot: SlotRecord, executor_memory: int, to: Recorder) -> None:
    to.count("emberstate_slot_starts_total", 1, job, slot.stage, slot.start)
    to.observe("emberstate_slot_batch_seconds", slot.seconds, job, slot.stage)
    if slot.start == "restored":
        to.observe("emberstate_restore_seconds", slot.micros.get("start", 0) / 1e6, job, slot.stage)
    if slot.slot >= MAX_SLOTS:
        return
    labels = (job, slot.stage, str(slot.slot))
    to.count("emberstate_slot_rows_total", slot.rows, *labels)
    to.put("emberstate_slot_seconds", slot.seconds, *labels)
    to.put("emberstate_slot_entries", slot.entries, *labels)
    to.put("emberstate_slot_state_bytes", slot.state_bytes, *labels)
    to.put("emberstate_slot_timers", slot.timers, *labels)
    to.put("emberstate_slot_memory_bytes", slot.memory, *labels)
    if slot.memory_limit:
        to.put("emberstate_slot_memory_ratio", executor_memory / slot.memory_limit, *labels)


def missing(error: ModuleNotFoundError) -> InstallationError:
    """The error for a library that is not installed."""
    what = f"metrics need {error.name}: pip install 'emberstate[metrics]'"
    return InstallationError(what, expected="emberstate[metrics]", found=error.name)
