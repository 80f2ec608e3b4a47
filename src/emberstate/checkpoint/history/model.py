"""The records of a job's history.

Times are µs since 1970 in UTC, durations µs. Records are for people: a number that is wrong after a crash or with a
wrong clock harms nobody. Types and sizes are checked when a record is read (`segments`).

Thread safety: immutable values.
"""

from __future__ import annotations

import statistics
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from emberstate.checkpoint.manifest.model import Ident, Micros, Name, Number

#: The longest text of an error that a record keeps.
MAX_ERROR: Final = 2000
#: Slots of a batch that a record keeps, the slowest; failed attempts; names of counters and outputs.
MAX_SLOTS: Final = 4096
MAX_FAILURES: Final = 100
MAX_NAMES: Final = 200

Text = Annotated[str, Meta(max_length=MAX_ERROR)]
#: Durations by part.
Parts = Annotated[dict[Annotated[str, Meta(max_length=50)], Number], Meta(max_length=50)]
Counts = Annotated[dict[Name, Number], Meta(max_length=MAX_NAMES)]
#: User counters may go down.
Counters = Annotated[dict[Name, Micros], Meta(max_length=MAX_NAMES)]

#: batch: a batch was committed and delivered; redelivery: one that had committed before was delivered again; failure:
#: a batch failed; opening: the job started; savepoint: one was made by the job.
RecordKind = Literal["batch", "redelivery", "failure", "opening", "savepoint"]


class SlotRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The part of one slot in a batch."""

    stage: Name
    slot: Number
    #: Where it ran: the executor's host and process id, `host:pid`.
    executor: Ident = ""
    #: How it got its state.
    start: Literal["hot", "rolled back", "restored"] = "hot"
    #: When its part began, by the clock of its machine.
    began: Micros = 0
    #: Durations: total; start (getting its state: the restore, if it was restored), transport (waiting for rows), user
    #: (the function, with access to state), state (clean-up), output, prepare (the delta), gc.
    micros: Parts = {}
    rows: Number = 0
    late_rows: Number = 0
    timers_fired: Number = 0
    #: Timers that wait.
    timers: Number = 0
    #: Entries of its state, and the size of its state's files.
    entries: Number = 0
    state_bytes: Number = 0
    #: What the batch added to them.
    delta_bytes: Number = 0
    #: Resident memory of its process, and the memory that its machine or container has.
    memory: Number = 0
    memory_limit: Number = 0

    @property
    def seconds(self) -> float:
        """How long its part took."""
        return self.micros.get("total", 0) / 1e6


class FailureRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A failed attempt: of a task that Spark ran again, or of the whole batch."""

    #: The class of the error, if known.
    error: Ident = ""
    message: Text = ""
    stage: Ident = ""
    slot: Number | None = None
    executor: Ident = ""


class HistoryRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One record: a batch, or another event of the job (`kind`)."""

    kind: RecordKind
    #: Its place in the history; ascending, with gaps where older records were thinned out.
    number: Number = 0
    #: An id of the run of the driver that wrote it, and the run's incarnation.
    run: Ident = ""
    incarnation: Number = 0
    job: Name
    #: When it began.
    time: Micros
    #: The batch, and the checkpoint that it became or that the event is about.
    batch: Number | None = None
    checkpoint: Number | None = None
    #: Durations by part, as in `Progress.seconds`: total, spark, transport, user, snapshot, state, delta, output,
    #: commit, sink, background. Of the slots' parts, means.
    micros: Parts = {}
    rows_in: Number = 0
    rows_out: Counts = {}
    late_rows: Number = 0
    late_rows_dropped: Number = 0
    null_keys: Number = 0
    timers_fired: Number = 0
    #: The watermark, and how far it was behind the batch's processing time; None without event time.
    watermark: Micros | None = None
    lag: Micros | None = None
    state_entries: Number = 0
    state_bytes: Number = 0
    delta_bytes: Number = 0
    counters: Counters = {}
    slots: Annotated[tuple[SlotRecord, ...], Meta(max_length=MAX_SLOTS)] = ()
    #: Attempts of tasks that failed before the batch succeeded; of a failure, its error.
    failures: Annotated[tuple[FailureRecord, ...], Meta(max_length=MAX_FAILURES)] = ()
    #: Of an opening: slots by stage, now, and in the checkpoint that it started from. A rescale is where they differ.
    parallelism: Counts = {}
    parallelism_before: Counts = {}
    #: Of a savepoint: its name.
    savepoint: Ident = ""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.micros.get("total", 0) / 1e6

    @property
    def rescaled(self) -> dict[str, tuple[int, int]]:
        """Stages whose number of slots an opening changed: before, and now."""
        before = self.parallelism_before
        return {
            stage: (before[stage], now) for stage, now in self.parallelism.items() if before.get(stage, now) != now
        }

    @property
    def worst_slot(self) -> SlotRecord | None:
        """The slot that took longest."""
        return max(self.slots, key=lambda slot: slot.seconds, default=None)

    @property
    def median_slot_seconds(self) -> float | None:
        """The median of the slots' times."""
        return statistics.median(slot.seconds for slot in self.slots) if self.slots else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; fields that have their default are left out."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain
