"""`CheckpointCoordinator`: one per job; only it commits.

    open   → claims the next incarnation, finds the latest checkpoint, and commits an opening: the same state
             under its own incarnation, for its own slots. This takes the number that an older holder would
             commit next.
    begin  → fixes the batch's intent, and returns a task for every slot
    commit → combines the acknowledgements into one manifest, created conditionally: the only commit point

A checkpoint is the state after a batch; its number counts commits and openings. Files that a manifest names never
change. `retention` deletes what is no longer needed.

Invariants: `latest` is the newest checkpoint and was written by this process. A commit that raised either did not
happen, or the next `begin`, here or in another process, finds it; then the batch is delivered again and not run again.

Thread safety: one thread at a time, the driver's.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from emberstate.checkpoint.commit.batch_order import check_order
from emberstate.checkpoint.commit.batch_times import with_event_times
from emberstate.checkpoint.commit.garbage import check_retained
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.next_manifest import Bundle, NextState
from emberstate.checkpoint.commit.opening import Opening
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED, Collected, Retention
from emberstate.checkpoint.commit.rewrite_orders import RewriteOrders
from emberstate.checkpoint.commit.savepoint import write_savepoint
from emberstate.checkpoint.commit.starting_point import OnCorruption
from emberstate.checkpoint.manifest.catalogue import read_checkpoint
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy, RewriteOrder
from emberstate.checkpoint.manifest.incarnation import check_newest, claim, fenced, newest
from emberstate.checkpoint.manifest.intent import Intent, fix
from emberstate.checkpoint.manifest.layout import manifest_path, new_id
from emberstate.checkpoint.manifest.model import Batch, Holder, Idle, Manifest, Parent, SlotChain, Stage, requirements
from emberstate.checkpoint.manifest.open_files import create_surely, read_ref
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import Clock, SystemClock
from emberstate.errors import (
    CheckpointCollectedError,
    EmberstateError,
    FencedError,
    RestoreRefusedError,
)
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError

#: How many checkpoints other processes may commit while this one opens.
_OPENING_TRIES: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """A batch that has begun."""

    intent: Intent
    tasks: tuple[SlotTask, ...]
    #: The checkpoint it starts from.
    start: Manifest

    @property
    def number(self) -> int:
        """The number of the checkpoint that it becomes."""
        return self.start.number + 1

    @property
    def batch(self) -> Batch:
        """The batch, with the times that every run of it sees."""
        return self.intent.batch


@dataclasses.dataclass(frozen=True, slots=True)
class Redelivery:
    """A batch that has committed before: the manifest has its outputs, and nothing is computed."""

    manifest: Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Counts of a coordinator."""

    number: int
    incarnation: int
    commits: int
    redeliveries: int
    adopted: int
    rejected: int
    manifest_bytes: int
    bundle_bytes: int
    retries: int


class CheckpointCoordinator:
    """Commits the checkpoints of one job.

    >>> from emberstate.storage.memory import MemoryStorage
    >>> from emberstate.keygroups import KeySchema
    >>> counts = OperatorSpec(name="counts", key_schema=KeySchema.from_python(str), parallelism=2)
    >>> coordinator = CheckpointCoordinator.open(MemoryStorage(), "clicks", [counts])
    >>> transaction = coordinator.begin(0, query="q", source="offsets")
    >>> [(task.slot, task.chain.groups) for task in transaction.tasks]
    [(0, (0, 63)), (1, (64, 127))]
    """

    def __init__(
        self,
        storage: Storage,
        holder: Holder,
        latest: Manifest,
        specs: Sequence[OperatorSpec],
        clock: Clock,
        policy: ChainPolicy,
        retained: int,
        stages: tuple[Stage, ...],
        first_batch: int | None,
    ) -> None:
        """For `open`."""
        self._storage = storage
        self._holder = holder
        self._latest = latest
        self._keep = {spec.name: tuple(spec.choices.keep_states) for spec in specs}
        self._clock = clock
        self._stages = stages
        self._first_batch = first_batch
        self._orders = RewriteOrders(policy)
        self._doubtful: Manifest | None = None  # a commit that raised and may exist all the same
        self.retention = Retention(storage, holder, retained)
        self._commits = self._redeliveries = self._adopted = self._rejected = 0
        self._manifest_bytes = self._bundle_bytes = self._retries = 0

    @staticmethod
    def open(
        storage: Storage,
        job: str,
        operators: Sequence[OperatorSpec],
        *,
        clock: Clock | None = None,
        policy: ChainPolicy = DEFAULT_POLICY,
        retained: int = DEFAULT_RETAINED,
        start_from: int | None = None,
        savepoint: tuple[Storage, str] | None = None,
        on_corruption: OnCorruption = "fail",
        drop_operators: Sequence[str] = (),
        stages: Sequence[Stage] = (),
        first_batch: int = 0,
    ) -> CheckpointCoordinator:
        """Take the job over and resume from its latest checkpoint, or from checkpoint `start_from`.

        Every commit records `stages`, the program's stages with the schemas of their outputs. A job without state
        begins with batch 0, or with `first_batch`, if it begins with empty state on purpose.

        A job without checkpoints may start from a savepoint (storage, name). Its first batch may then be any batch of
        any query; `latest.saved_batch` is the savepoint's batch, whose times continue.

        Raises:
            RestoreRefusedError: the checkpoint does not fit the program; the message says what to do.
            CorruptionError: it is damaged, and `on_corruption` is "fail".
            StorageError: the storage has no true conditional create, or cannot be reached.
        """
        opening = Opening(
            storage=storage,
            job=job,
            operators=operators,
            clock=SystemClock() if clock is None else clock,
            start_from=start_from,
            savepoint=savepoint,
            on_corruption=on_corruption,
            drop_operators=drop_operators,
        )
        check_retained(retained)
        storage.check_conditional_create()
        opening.check()
        holder = claim(storage, opening.clock)
        for _ in range(_OPENING_TRIES):
            manifest = opening.manifest(holder)
            coordinator = CheckpointCoordinator(
                storage, holder, manifest, operators, opening.clock, policy, retained, tuple(stages),
                None if savepoint is not None else first_batch,
            )  # fmt: skip
            if coordinator._create(manifest):
                check_newest(storage, holder, "opening")
                coordinator.retention.opened(manifest)
                return coordinator
        raise FencedError(
            f"other processes wrote {_OPENING_TRIES} checkpoints while job {job!r} was opened. Stop them."
        )

    @property
    def latest(self) -> Manifest:
        """The newest checkpoint."""
        return self._latest

    @property
    def holder(self) -> Holder:
        """This process, as in claims and manifests."""
        return self._holder

    @property
    def unfinished(self) -> frozenset[str]:
        """The ids of rewrites that slots may be writing: files with them in their names are not garbage."""
        return self._orders.ids

    def begin(
        self,
        batch: int,
        *,
        query: str,
        source: str,
        watermark: int | None = None,
        idle: Idle | None = None,
        ended: bool = False,
    ) -> Transaction | Redelivery:
        """Begin a batch: fix its times and return a task for every slot. If the batch has committed before, return its
        manifest instead: the caller delivers the outputs again and does not run the batch.

        `idle` is stored if the batch has no rows with an event time. No batch follows one that `ended` the input.

        Raises:
            RestoreRefusedError: it is not the next batch, or has other input than before.
        """
        self._settle()
        check_order(
            self._latest, batch, query, source, first=self._first_batch, where=self._storage.describe()
        )
        own, last = self._latest.batch, self._latest.times
        if own is not None and own.id == batch:
            if self._latest.delivered:
                raise RestoreRefusedError(
                    f"batch {batch} cannot be delivered again: a later one had committed before the job was set back "
                    f"to {self._latest.describe()}, and the output of batch {batch} was deleted. Continue with batch "
                    f"{batch + 1}: mark {batch} as done in the query's own checkpoint.",
                    batch=batch,
                    checkpoint=self._latest.number,
                )
            self._redeliveries += 1
            return Redelivery(self._latest)
        if last is not None and last.ended:
            raise RestoreRefusedError(
                f"batch {batch} cannot begin: the input of job {self._latest.job!r} ended with batch {last.id} "
                f"(at_end='close'), so all windows are closed and every row would be late. Start a new job with all "
                f"input, or from an earlier savepoint; a job that ends with at_end='wait' can continue.",
                batch=batch,
                checkpoint=self._latest.number,
                option="at_end",
                found="close",
            )
        if last is not None and last.watermark is not None and (watermark is None or watermark < last.watermark):
            watermark = last.watermark  # never back
        # Time does not go back with the clock: a base may have left out expired entries that hot state still has.
        now = self._clock.now_micros()
        now = now if last is None else max(now, last.processing_time)
        wanted = Batch(batch, query, source, now, watermark, idle=idle, ended=ended)
        origin = self._latest.origin
        intent = fix(self._storage, Intent(wanted, origin, self._holder.incarnation, self._holder.token))
        transaction = Transaction(intent, tuple(self._tasks(intent.batch)), self._latest)
        self.retention.begun(transaction.number)
        return transaction

    def commit(
        self,
        transaction: Transaction,
        acknowledgements: Sequence[Acknowledgement],
        micros: Mapping[str, int] | None = None,
        stage_watermarks: Mapping[str, int] | None = None,
    ) -> Manifest:
        """Make the transaction's result the latest checkpoint, durably, as a whole or not at all.

        `stage_watermarks` is stored with the batch, and so is `micros`: how long parts of the batch took, for display.

        Raises:
            FencedError: another process has taken the job over. If the commit happened all the same, the other
                process resumes from it; this process must not deliver its output.
            StorageError: the write failed, or its outcome is unknown. Nothing is lost: begin the batch again, which
                finds the commit if it happened.
        """
        self._settle()
        start = self._latest
        if transaction.start is not start:
            raise RestoreRefusedError(
                f"the transaction started from {transaction.start.describe()}, but the latest is {start.describe()}. "
                f"Begin the batch again.",
                batch=transaction.batch.id,
                checkpoint=transaction.number,
            )
        bundle = Bundle(transaction.number)
        state = NextState(start, transaction.tasks, acknowledgements, self._orders, bundle)
        ident = new_id()
        manifest = Manifest(
            job=start.job,
            id=ident,
            number=transaction.number,
            kind="commit",
            writer=self._holder,
            created=self._clock.now_micros(),
            origin=ident,
            location=start.location,
            parent=Parent(start.number, start.id),
            batch=msgspec.structs.replace(
                with_event_times(transaction.batch, start.times, acknowledgements),
                stage_watermarks=None if stage_watermarks is None else dict(stage_watermarks),
            ),
            operators=state.operators,
            outputs=state.outputs,
            stages=self._stages,
            micros=dict(micros or {}),
            requires=requirements(state.outputs),
        )
        if bundle.parts:
            self._storage.write_new(bundle.path, bundle.parts)
        self._doubtful = manifest
        if not self._create(manifest):
            raise self._overtaken(manifest.number)
        # The number may be free only because its checkpoint was collected: then there is a newer claim.
        check_newest(self._storage, self._holder, f"committing checkpoint {manifest.number}")
        self._made(manifest)
        self._adopted += state.adopted
        self._rejected += state.rejected
        self._bundle_bytes += sum(len(part) for part in bundle.parts)
        self._orders.committed(acknowledgements)
        self.retention.committed(manifest, self.unfinished)
        return manifest

    def savepoint(self, name: str, target: Storage | None = None) -> Manifest:
        """Copy the latest checkpoint to a savepoint of that name, here or in another storage.

        Raises:
            StorageExistsError: the name is taken.
        """
        return write_savepoint(self._storage, self._latest, target or self._storage, name, clock=self._clock)

    def collect(self) -> Collected:
        """List everything and delete what is no longer needed.

        Commits delete by themselves, except what crashes and failures have left since the start.
        """
        return self.retention.collect(self.unfinished)

    def check_holder(self) -> None:
        """Raise `FencedError` if another process has taken the job over. Callers check before they call a sink."""
        check_newest(self._storage, self._holder, "asking who holds the job")

    def statistics(self) -> CoordinatorStatistics:
        """Return the counts so far."""
        return CoordinatorStatistics(
            self._latest.number, self._holder.incarnation, self._commits, self._redeliveries, self._adopted,
            self._rejected, self._manifest_bytes, self._bundle_bytes, self._retries,
        )  # fmt: skip

    # -- parts ----------------------------------------------------------------------------------------------

    def _tasks(self, batch: Batch) -> list[SlotTask]:
        return [
            SlotTask(
                holder=self._holder,
                job=self._latest.job,
                operator=operator.name,
                slot=slot,
                number=self._latest.number + 1,
                batch=batch,
                chain=chain,
                rewrite=self._order(operator.name, slot, chain),
                keep_states=self._keep[operator.name],
                settled=operator.settled,
                contents=self._contents(chain),
            )
            for operator in self._latest.operators
            for slot, chain in enumerate(operator.slots)
        ]

    def _order(self, operator: str, slot: int, chain: SlotChain) -> RewriteOrder | None:
        """Return an order for the slot; None if slots cannot write to the storage."""
        return self._orders.order(operator, slot, chain, self._latest.number) if self._storage.shared else None

    def _contents(self, chain: SlotChain) -> dict[str, bytes]:
        """Return the files that slots need, if they cannot reach the storage."""
        if self._storage.shared:
            return {}
        return {file.id: read_ref(self._storage, file.place) for file in chain.files}

    def _create(self, manifest: Manifest) -> bool:
        """Create a manifest; return False if the number is taken."""
        data = manifest.to_bytes()
        self._manifest_bytes = len(data)
        return create_surely(self._storage, manifest_path(manifest.number), data, self._retried)

    def _retried(self) -> None:
        self._retries += 1

    def _made(self, manifest: Manifest) -> None:
        """Note a commit that is known to exist."""
        self._latest, self._doubtful = manifest, None
        self._commits += 1

    def _settle(self) -> None:
        """Find out whether a commit that raised exists. If that fails too, nothing changes."""
        doubtful = self._doubtful
        if doubtful is None:
            return
        path = manifest_path(doubtful.number)
        try:
            found = read_checkpoint(self._storage, doubtful.number)
        except CheckpointCollectedError:
            self._doubtful = None  # if it appears later, the next commit collides with it
            return
        if found.id != doubtful.id:
            raise self._overtaken(doubtful.number)
        self._storage.ensure_durable(path)
        check_newest(self._storage, self._holder, f"committing checkpoint {doubtful.number}")
        self._made(found)
        self.retention.committed(found, self.unfinished)

    def _overtaken(self, number: int) -> EmberstateError:
        """Return the error for a number that is taken: by another process, or by an earlier try of this one."""
        try:
            other = read_checkpoint(self._storage, number)
        except CheckpointCollectedError:  # by the process that took the number, or a later one
            return fenced(self._storage, self._holder, newest(self._storage), f"committing checkpoint {number}")
        if other.writer != self._holder:
            return fenced(self._storage, self._holder, other.writer, f"committing checkpoint {number}")
        self._doubtful = other
        return StorageOutcomeUnknownError(
            errno.EAGAIN,
            f"committing checkpoint {number}: an earlier try of this process, whose outcome was unknown, succeeded. "
            f"Nothing is lost. Begin the batch again, and its output is delivered.",
            checkpoint=number,
        )
