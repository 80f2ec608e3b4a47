"""`CheckpointCoordinator`: one per job; it alone commits.

    open   → claims the next incarnation, finds the latest checkpoint, and commits an opening: the same state
             under its own incarnation, for its own slots. From here on, the number that an older holder would
             commit next is taken.
    begin  → fixes the batch's intent, and gives every slot its task
    commit → makes of the acknowledgements one manifest, created conditionally: the only commit point

A checkpoint is the state after a batch; its number counts commits and openings. Nothing that a manifest names
is ever changed. What is not needed any more is deleted by `retention`.

Invariants: `latest` is the newest checkpoint and was written by this process; a commit that raised is either
not there, or is what the next `begin`, here or in another process, finds: then the batch is delivered again and
not run again.

Thread safety: one thread at a time, the driver's.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from emberstate.checkpoint.commit.batch_order import check_order
from emberstate.checkpoint.commit.garbage import check_retained
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.next_manifest import Bundle, NextState
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED, Collected, Retention
from emberstate.checkpoint.commit.savepoint import import_savepoint, write_savepoint
from emberstate.checkpoint.commit.starting_point import Latest, OnCorruption, find_latest, kept_outputs
from emberstate.checkpoint.manifest.catalogue import read_checkpoint, read_savepoint
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy, RewriteOrder, plan_rewrite
from emberstate.checkpoint.manifest.incarnation import check_newest, claim, fenced, newest
from emberstate.checkpoint.manifest.intent import Intent, fix
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import manifest_path, new_id
from emberstate.checkpoint.manifest.model import Batch, Holder, Idle, InputTime, Manifest, Parent, SlotChain, Stage
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.checkpoint.manifest.pins import check_not_condemned
from emberstate.checkpoint.restore.operators import OperatorSpec, opened_operators
from emberstate.clock import Clock, SystemClock
from emberstate.errors import (
    CheckpointCollectedError,
    EmberstateError,
    FencedError,
    RestoreRefusedError,
    StateDeclarationError,
)
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError

#: How often a commit whose outcome is unknown is tried again, with the same bytes.
_TRIES: Final = 5

#: How many checkpoints of others may appear while one is being opened.
_OPENING_TRIES: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Transaction:
    """A batch that was begun."""

    intent: Intent
    tasks: tuple[SlotTask, ...]
    #: The checkpoint that it starts from.
    start: Manifest

    @property
    def number(self) -> int:
        """The checkpoint that it is to become."""
        return self.start.number + 1

    @property
    def batch(self) -> Batch:
        """The batch, with the times that every run of it sees."""
        return self.intent.batch


@dataclasses.dataclass(frozen=True, slots=True)
class Redelivery:
    """A batch that was committed already: its outputs are in the manifest, and nothing is to be computed."""

    manifest: Manifest


@dataclasses.dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """What a coordinator has done."""

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
        self._policy = policy
        self._stages = stages
        self._first_batch = first_batch
        self._orders: dict[tuple[str, int], RewriteOrder] = {}
        self._doubtful: Manifest | None = None  # a commit that raised and may have been made all the same
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
        """Take the job over, and go on from its latest checkpoint or from the one whose number is given.

        `stages` are the program's, with the schemas of their outputs: every commit records them. A job without any
        state begins with batch 0 or with `first_batch`, which says that it is to begin with nothing there.

        A job without checkpoints may start with the state of a savepoint, a storage and a name. It begins with any
        batch of any query then; the savepoint's own is in `latest.saved_batch`, and time goes on from there.

        Raises:
            RestoreRefusedError: the checkpoint does not fit the program; the message says what to do.
            CorruptionError: it is damaged, and `on_corruption` is "fail".
            StorageError: the storage has no true conditional create, or cannot be reached.
        """
        clock = SystemClock() if clock is None else clock
        _check_names(job, operators)
        check_retained(retained)
        storage.check_conditional_create()
        # Judged before the job is taken over: a program that cannot go on does not stop one that can.
        found = find_latest(storage, job, start_from, on_corruption)
        if savepoint is None:
            opened_operators(storage, found.manifest, operators, "", clock.now_micros(), drop_operators)
        else:
            _check_new(storage, found, savepoint[1])
            saved = read_savepoint(*savepoint)
            opened_operators(savepoint[0], saved, operators, "", clock.now_micros(), drop_operators)
        holder = claim(storage, clock)
        for _ in range(_OPENING_TRIES):
            found = find_latest(storage, job, start_from, on_corruption)
            # After the look and before the create: if a newer holder has opened, its claim is seen here, and the
            # number that it will commit next is left to it.
            check_newest(storage, holder, "opening")
            before = state = found.manifest
            if savepoint is not None:
                _check_new(storage, found, savepoint[1])
                state = import_savepoint(*savepoint, storage, holder, found.newest_number + 1)
            outputs = kept_outputs(storage, found)
            ident = new_id()
            manifest = Manifest(
                job=job,
                id=ident,
                number=found.newest_number + 1,
                kind="opening",
                writer=holder,
                created=clock.now_micros(),
                origin=_origin(before, found.newest_number, start_from, ident),
                parent=None if before is None else Parent(before.number, before.id),
                location=(before.location if before is not None else "") or new_id(),
                batch=None if before is None else before.batch,
                saved_batch=_saved_batch(before, None if savepoint is None else state),
                operators=opened_operators(storage, state, operators, ident, clock.now_micros(), drop_operators),
                outputs=outputs or (),
                stages=() if before is None else before.stages,
                delivered=outputs is None,
            )
            open_manifest(manifest.to_bytes(), "the checkpoint to be opened")  # what nobody could read is not written
            if before is not None:
                if before.number < found.newest_number:
                    # A holder that was overtaken a moment ago may be about to collect it.
                    check_not_condemned(storage, before.number)
                storage.ensure_durable(manifest_path(before.number))
            coordinator = CheckpointCoordinator(
                storage, holder, manifest, operators, clock, policy, retained, tuple(stages),
                None if savepoint is not None else first_batch,
            )  # fmt: skip
            if coordinator._create(manifest):
                check_newest(storage, holder, "opening")
                coordinator.retention.opened(manifest)
                return coordinator
        raise FencedError(f"{_OPENING_TRIES} checkpoints of others appeared while job {job!r} was opened: stop them")

    @property
    def latest(self) -> Manifest:
        """The newest checkpoint."""
        return self._latest

    @property
    def holder(self) -> Holder:
        """This process, as claims and manifests name it."""
        return self._holder

    @property
    def unfinished(self) -> frozenset[str]:
        """The ids of rewrites that slots may be writing: files that bear them are not garbage."""
        return frozenset(order.id for order in self._orders.values())

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
        """Begin a batch: what is fixed about it, and a task for every slot. A batch that was committed already is
        not run again; its outputs are to be delivered again.

        `idle` is stored if the batch turns out to have no rows with an event time. No batch follows one that `ended`
        the input.

        Raises:
            RestoreRefusedError: it is not the batch that follows, or comes with other input than before.
        """
        self._settle()
        check_order(
            self._latest, batch, query, source, first=self._first_batch, where=self._storage.describe()
        )
        own, last = self._latest.batch, self._latest.times
        if own is not None and own.id == batch:
            if self._latest.delivered:
                raise RestoreRefusedError(
                    f"batch {batch} comes again, but a later one had committed before the job was set back to "
                    f"{self._latest.describe()}: the output of batch {batch} was delivered and is gone. Go on with "
                    f"batch {batch + 1}: let the query's own checkpoint say that {batch} is done."
                )
            self._redeliveries += 1
            return Redelivery(self._latest)
        if last is not None and last.ended:
            raise RestoreRefusedError(
                f"batch {batch} comes, but the input of job {self._latest.job!r} was said to end with batch {last.id} "
                f"(at_end='close'): all windows are closed, and every row would be late. Start a new job with all of "
                f"the input, or from a savepoint that was made before; one that ends with at_end='wait' can go on."
            )
        if last is not None and last.watermark is not None and (watermark is None or watermark < last.watermark):
            watermark = last.watermark  # never back
        # A clock that steps back stands still here: a base may have left out what had expired, hot state has it.
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
        """Make the transaction's result the latest checkpoint: durable, whole, or not at all.

        `stage_watermarks` is stored with the batch. `micros` says how long parts of the batch took; it is stored for
        people.

        Raises:
            FencedError: another process has taken the job over. If the commit was made all the same, the other
                has it; this process must not deliver its output.
            StorageError: it could not be written, or nobody knows. Nothing is lost; begin the batch again, and if
                it was committed that is found.
        """
        self._settle()
        start = self._latest
        if transaction.start is not start:
            raise RestoreRefusedError(
                f"the transaction started from {transaction.start.describe()}, the latest is {start.describe()}: "
                f"begin the batch again"
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
                _with_max_event_time(transaction.batch, start.times, acknowledgements),
                stage_watermarks=None if stage_watermarks is None else dict(stage_watermarks),
            ),
            operators=state.operators,
            outputs=state.outputs,
            stages=self._stages,
            micros=dict(micros or {}),
        )
        if bundle.parts:
            self._storage.write_new(bundle.path, bundle.parts)
        self._doubtful = manifest
        if not self._create(manifest):
            raise self._overtaken(manifest.number)
        # A number that was free may have been taken before, and collected: then there is a newer claim.
        check_newest(self._storage, self._holder, f"committing checkpoint {manifest.number}")
        self._made(manifest)
        self._adopted += state.adopted
        self._rejected += state.rejected
        self._bundle_bytes += sum(len(part) for part in bundle.parts)
        self._note_orders(acknowledgements)
        self.retention.committed(manifest, self.unfinished)
        return manifest

    def savepoint(self, name: str, target: Storage | None = None) -> Manifest:
        """Copy the latest checkpoint, whole, to a savepoint of that name, here or in another storage.

        Raises:
            StorageExistsError: the name is taken.
        """
        return write_savepoint(self._storage, self._latest, target or self._storage, name, clock=self._clock)

    def collect(self) -> Collected:
        """Delete everything that is not needed any more, after a look at everything that is there.

        Commits do that by themselves, but for what crashes and failures left since the start.
        """
        return self.retention.collect(self.unfinished)

    def check_holder(self) -> None:
        """Raise `FencedError` if another process has taken the job over; to be asked before a sink is called."""
        check_newest(self._storage, self._holder, "asking who holds the job")

    def statistics(self) -> CoordinatorStatistics:
        """What was done so far."""
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
        """A rewrite for a slot that has none and whose chain is long; the same again if it has not begun."""
        if not self._storage.shared:
            return None
        if (operator, slot) in self._orders:
            return self._orders[operator, slot]
        order = plan_rewrite(chain, self._latest.number, self._policy)
        if order is not None:
            self._orders[operator, slot] = order
        return order

    def _contents(self, chain: SlotChain) -> dict[str, bytes]:
        """What slots need of a storage that they cannot reach."""
        if self._storage.shared:
            return {}
        return {file.id: read_ref(self._storage, file.place) for file in chain.files}

    def _note_orders(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """An order that a slot neither fulfils nor has just fulfilled is over; another may follow."""
        for acknowledgement in acknowledgements:
            where = (acknowledgement.operator, acknowledgement.slot)
            order = self._orders.get(where)
            if order is not None and (acknowledgement.rewriting != order.id or acknowledgement.rewrite is not None):
                del self._orders[where]

    def _create(self, manifest: Manifest) -> bool:
        """Create a manifest; an unknown outcome is settled by trying again with the same bytes."""
        data = manifest.to_bytes()
        self._manifest_bytes = len(data)
        for _ in range(_TRIES - 1):
            try:
                return self._storage.create_if_absent(manifest_path(manifest.number), data)
            except StorageOutcomeUnknownError:
                self._retries += 1
        return self._storage.create_if_absent(manifest_path(manifest.number), data)

    def _made(self, manifest: Manifest) -> None:
        """A commit was made, and is known to be."""
        self._latest, self._doubtful = manifest, None
        self._commits += 1

    def _settle(self) -> None:
        """Find out what became of a commit that raised. What is not known leaves everything as it was."""
        doubtful = self._doubtful
        if doubtful is None:
            return
        path = manifest_path(doubtful.number)
        try:
            found = read_checkpoint(self._storage, doubtful.number)
        except CheckpointCollectedError:
            self._doubtful = None  # if it lands after all, the next commit collides with it
            return
        if found.id != doubtful.id:
            raise self._overtaken(doubtful.number)
        self._storage.ensure_durable(path)
        check_newest(self._storage, self._holder, f"committing checkpoint {doubtful.number}")
        self._made(found)
        self.retention.committed(found, self.unfinished)

    def _overtaken(self, number: int) -> EmberstateError:
        """The error for a number that was taken: by another process, or by an earlier try of this one."""
        try:
            other = read_checkpoint(self._storage, number)
        except CheckpointCollectedError:  # by who took the number, or a later one
            return fenced(self._storage, self._holder, newest(self._storage), f"committing checkpoint {number}")
        if other.writer != self._holder:
            return fenced(self._storage, self._holder, other.writer, f"committing checkpoint {number}")
        self._doubtful = other
        return StorageOutcomeUnknownError(
            errno.EAGAIN,
            f"committing checkpoint {number}: an earlier try of this process, of which nobody knew what became of it, "
            f"was made after all. Nothing is lost: begin the batch again, and its output is delivered.",
        )


def _check_new(storage: Storage, found: Latest, savepoint: str) -> None:
    if found.newest_number:
        raise RestoreRefusedError(
            f"the job has checkpoints in {storage.describe()} already, up to {found.newest_number}, and is to start "
            f"from savepoint {savepoint!r}. To go on from its own checkpoints, leave the savepoint out; to start from "
            f"the savepoint, give the job a new location."
        )


def _check_names(job: str, operators: Sequence[OperatorSpec]) -> None:
    names = [spec.name for spec in operators]
    for what, name in (("job", job), *(("operator", name) for name in names)):
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            raise StateDeclarationError(f"the name of {what} {name!r:.100} must be printable, of 1 to 200 characters")
    if len(set(names)) != len(names) or not names:
        raise StateDeclarationError(f"a job has operators, with different names; found {names}")


def _origin(before: Manifest | None, newest: int, start_from: int | None, ident: str) -> str:
    """What the next batch's intent is filed under: who goes back on purpose has nothing to do with the batches that
    were begun from there before."""
    if before is None:
        return ""
    return before.origin if start_from is None or before.number == newest else ident


def _saved_batch(before: Manifest | None, savepoint: Manifest | None) -> Batch | None:
    """What an opening remembers of the savepoint that the job starts, or has started, from."""
    if savepoint is not None:
        return savepoint.times
    return None if before is None else before.saved_batch


def _with_max_event_time(batch: Batch, before: Batch | None, acknowledgements: Sequence[Acknowledgement]) -> Batch:
    times = [a.max_event_time for a in acknowledgements if a.max_event_time is not None]
    idle = None if times else batch.idle
    if before is not None and before.max_event_time is not None:
        times.append(before.max_event_time)
    inputs = _input_times(batch, before, [a.input_times for a in acknowledgements if a.input_times])
    return msgspec.structs.replace(batch, max_event_time=max(times, default=None), idle=idle, inputs=inputs)


def _input_times(
    batch: Batch, before: Batch | None, found: Sequence[tuple[int | None, ...]]
) -> tuple[InputTime, ...]:
    """How far each of two inputs is after the batch; nothing if slots do not tell inputs apart."""
    if not found:
        return ()
    count = len(found[0])
    earlier = (InputTime(batch.processing_time),) * count if before is None else before.of_inputs(count)
    inputs = []
    for one, times in zip(earlier, zip(*found, strict=True), strict=True):
        came = [time for time in times if time is not None]
        if came:
            known = [] if one.max_event_time is None else [one.max_event_time]
            one = InputTime(batch.processing_time, max(came + known))
        inputs.append(one)
    return tuple(inputs)
