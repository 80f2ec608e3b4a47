"""`LocalJob`: a coordinator and its slots in one process, and the transactions they run.

The path is that of a real job: intent, run and prepare in every slot, commit, delivery of what the manifest
names. A crash loses everything but the storage; the job is opened again, and the same batch comes again, as Spark
would send it: it is run anew, or, if it was committed, delivered from the checkpoint.

Invariants: between transactions, the slots hold what `latest` says or nothing; a batch is delivered once.

Thread safety: one thread.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from typing import Any, Final

import pyarrow as pa

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.manifest.catalogue import read_checkpoint
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.layout import intent_path, new_id
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.checkpoint.restore.operators import judge
from emberstate.checkpoint.restore.verdict import RestoreVerdict
from emberstate.clock import ManualClock
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.operator.slot import OperatorSlot, agreed_broadcast
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.outputs import read_output
from emberstate.runtime.rows.row import Row
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.config import TtlClock
from emberstate.testing.round_trip import check_round_trip

#: Chains are short, so that a test of a few transactions meets deltas, merged deltas and bases.
_POLICY: Final = ChainPolicy(most_files=8, rewrite_at=3)

_QUERY: Final = "harness"


class CrashPoint(enum.Enum):
    """Where a transaction can crash."""

    BEFORE_PREPARE = "before prepare"
    AFTER_PREPARE = "after prepare"
    AFTER_COMMIT = "after commit"


class _Crash(BaseException):
    """Everything in memory is lost."""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """Input of a transaction: broadcast rows, and the keyed rows of every slot."""

    broadcast: pa.RecordBatch | None = None
    slots: tuple[pa.RecordBatch | None, ...] = ()


@dataclasses.dataclass(slots=True)
class JobStatistics:
    """Counts of a job, over all its openings."""

    transactions: int = 0
    roll_backs: int = 0
    crashes: int = 0
    redeliveries: int = 0
    round_trips: int = 0


class LocalJob:
    """Runs the transactions of one operator; opened by `open`, again and again."""

    def __init__(self, spec: StageSpec, state_backend: StateBackend, clock: ManualClock) -> None:
        self.spec = spec
        self.state_backend = state_backend
        self.storage = state_backend.open_storage()
        self.clock = clock
        self.statistics = JobStatistics()
        #: Counts of committed transactions: rows, late rows, timers, and the function's own counters.
        self.counts: Counter[str] = Counter()
        self._choices = NO_CHOICES
        self._template: KeyedOperator | None = None
        self._coordinator: CheckpointCoordinator | None = None
        self._slots: list[OperatorSlot] = []

    # -- opening and closing --------------------------------------------------------------------------------

    def open(self, spec: StageSpec, choices: RestoreChoices, start_from: int | None = None) -> None:
        """Take the job over with this program, from the latest checkpoint or the one whose number is given.

        If it is refused, what ran before goes on.
        """
        template = spec.open_template()
        try:
            coordinator = CheckpointCoordinator.open(
                self.storage,
                spec.name,
                spec.operator_specs(template, choices),
                clock=self.clock,
                policy=_POLICY,
                start_from=start_from,
            )
        except BaseException:
            template.close()
            raise
        self.close()
        self.spec, self._choices = spec, choices
        self._coordinator, self._template = coordinator, template
        self._slots = [self._new_slot() for _ in range(spec.parallelism)]

    def verdict(self, spec: StageSpec, choices: RestoreChoices, number: int) -> RestoreVerdict:
        """Return what a restore of a checkpoint would do with each state under this program; changes nothing."""
        manifest = read_checkpoint(self.storage, number)
        template = spec.open_template()
        try:
            verdicts = [
                judge(self.storage, stored, declared, self.ttl_clock(manifest))
                for declared in spec.operator_specs(template, choices)
                if (stored := manifest.operator(declared.name)) is not None
            ]
        finally:
            template.close()
        return RestoreVerdict(
            states=tuple(state for verdict in verdicts for state in verdict.states),
            problems=tuple(problem for verdict in verdicts for problem in verdict.problems),
        )

    def crash(self) -> None:
        """Lose everything but the storage, as a killed process does, and open again."""
        self.statistics.crashes += 1
        self._slots, self._template = [], None  # not closed: a killed process closes nothing
        self.open(self.spec, self._choices)

    def close(self) -> None:
        """End the slots; the checkpoints stay. A second call does nothing."""
        for slot in self._slots:
            slot.close()
        self._slots = []
        if self._template is not None:
            self._template.close()
            self._template = None

    # -- monitoring -----------------------------------------------------------------------------------------

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The present coordinator."""
        assert self._coordinator is not None
        return self._coordinator

    @property
    def latest(self) -> Manifest:
        """The newest checkpoint."""
        return self.coordinator.latest

    @property
    def operators(self) -> list[KeyedOperator]:
        """The operators of the slots that hold state."""
        return [slot.operator for slot in self._slots if slot.is_hot]

    def ttl_clock(self, manifest: Manifest) -> TtlClock:
        """The times that expiry is judged by after a checkpoint."""
        clock = TtlClock()
        clock.processing_time = self.clock.now_micros()
        clock.event_time = None if manifest.times is None else manifest.times.watermark
        return clock

    def declared_like(self, slot: int) -> KeyedOperator:
        """An operator with the states of a slot: its own, if it holds any."""
        if self._slots[slot].is_hot:
            return self._slots[slot].operator
        assert self._template is not None
        return self._template

    @property
    def keep_states(self) -> tuple[str, ...]:
        """States that are carried along as bytes."""
        return tuple(self._choices.keep_states)

    def check_round_trip(self) -> None:
        """Raise `InvariantError` unless every slot that holds state holds what is stored."""
        self.statistics.round_trips += 1
        keyed, *sides = self.latest.operators
        for number, slot in enumerate(self._slots):
            if slot.is_hot:
                check_round_trip(slot.operator.backend, self.storage, keyed, number, self.keep_states)
                if sides:
                    self._check_broadcast(slot.operator.broadcast_backend, sides[0])

    def _check_broadcast(self, backend: KeyedStateBackend | None, stored: Operator) -> None:
        assert backend is not None
        check_round_trip(backend, self.storage, stored, 0)

    # -- transactions ---------------------------------------------------------------------------------------

    def run(self, work: Work, watermark: int | None, crash: CrashPoint | None = None) -> dict[str, list[Row]]:
        """Run a transaction to its end, through a crash if one is asked for; return its outputs, delivered once.

        What the function raises is raised, and nothing has happened then.
        """
        last = self.latest.batch
        batch = 0 if last is None else last.id + 1
        try:
            return self._attempt(batch, work, watermark, crash)
        except _Crash:
            self.crash()
            return self._attempt(batch, work, watermark, None)

    def _attempt(
        self, batch: int, work: Work, watermark: int | None, crash: CrashPoint | None
    ) -> dict[str, list[Row]]:
        begun = self.coordinator.begin(batch, query=_QUERY, source=f"batch {batch}", watermark=watermark)
        if isinstance(begun, Redelivery):
            self.statistics.redeliveries += 1
            return self._delivered(begun.manifest)
        started: list[OperatorSlot] = []
        try:
            acknowledgements = self._prepared(begun, work, started, crash)
            manifest = self.coordinator.commit(begun, acknowledgements)
        except _Crash:
            raise
        except BaseException:
            self._undo(begun, started)
            raise
        self.statistics.transactions += 1
        self._count(acknowledgements)
        if crash is CrashPoint.AFTER_COMMIT:
            raise _Crash
        self.check_round_trip()
        return self._delivered(manifest)

    def _prepared(
        self, transaction: Transaction, work: Work, started: list[OperatorSlot], crash: CrashPoint | None
    ) -> list[Acknowledgement]:
        tasks = [SlotTask.from_bytes(task.to_bytes()) for task in transaction.tasks]  # as slots receive them
        side = tasks.pop() if self.spec.has_broadcast else None
        for number, (slot, task) in enumerate(zip(self._slots, tasks, strict=True)):
            started.append(slot)
            slot.start(task, side)
            if work.broadcast is not None:
                slot.operator.process_broadcast_batch(work.broadcast)
            rows = work.slots[number] if work.slots else None
            if rows is not None:
                slot.operator.process_batch(rows)
        if crash is CrashPoint.BEFORE_PREPARE:
            raise _Crash
        attempt = new_id()
        answers = [slot.prepare(attempt)[1] for slot in self._slots]
        acknowledgements = [keyed for keyed, *_ in answers] + agreed_broadcast(self.spec.name, answers)
        if crash is CrashPoint.AFTER_PREPARE:
            raise _Crash
        return [Acknowledgement.from_bytes(one.to_bytes()) for one in acknowledgements]

    def _undo(self, transaction: Transaction, started: list[OperatorSlot]) -> None:
        """Undo the begin of a transaction: a test goes on with other rows at another time."""
        for slot in started:
            slot.roll_back()
        self.statistics.roll_backs += 1
        self.storage.delete(intent_path(transaction.batch.id, transaction.intent.origin))

    def _count(self, acknowledgements: list[Acknowledgement]) -> None:
        for acknowledgement in acknowledgements:
            if acknowledgement.operator == self.spec.name:
                self.counts.update(acknowledgement.counts)

    def _delivered(self, manifest: Manifest) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {}
        for output in manifest.outputs:
            content: Any = read_ref(self.storage, output.place)
            found = read_output(content, self.spec.row_types[output.name], output.format)
            rows.setdefault(output.name, []).extend(found)
        return rows

    def _new_slot(self) -> OperatorSlot:
        return OperatorSlot(
            self.spec.make_operator,
            self.state_backend,
            self.spec.key_schema,
            max_parallelism=self.spec.max_parallelism,
            policy=_POLICY,
        )
