"""`SlotCheckpoint`: a slot's side of the checkpoints. It holds the slot's state between transactions, brings
it to a transaction's starting point, and prepares the transaction's changes.

    start(task) → the backend is at the task's starting point; the host runs the batch on it
    prepare(…)  → the changes are durable (or travel inside the acknowledgement), but not committed
    start(next) → if the next task starts from the prepared state, that was committed, and nothing needs to be done

The state is identified by the attempt that made it, an id that is never used twice. If a task starts from another
attempt, the state is rolled back, or dropped and restored. So reusing a slot is faster, but correctness never depends
on it.

Invariants: `_attempt` names the committed state, and `_committed` is the snapshot to roll back to; at most one
attempt is prepared; the next start rolls back a transaction that was neither prepared nor rolled back.

Thread safety: one owner thread, the backend's.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal

from emberstate.checkpoint.commit.background_writer import BackgroundStatistics, BackgroundWriter
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask, WrittenOutput, WrittenState
from emberstate.checkpoint.commit.state_checksum import StateChecksum
from emberstate.checkpoint.commit.state_limit import StateLimit
from emberstate.checkpoint.files.writer import BaseWriter, WrittenFile, write_delta
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy, Rewrite
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, PastChoices
from emberstate.checkpoint.manifest.layout import new_id, output_path, state_path
from emberstate.checkpoint.manifest.model import FileRef, OutputFormat
from emberstate.checkpoint.manifest.open_files import open_state_file, store_file
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import EmberstateError, LifecycleError, Place, StorageError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.storage.interface import Storage

_log = logging.getLogger("emberstate.checkpoint")

#: A delta or output up to this size travels inside the acknowledgement.
INLINE_BYTES: Final = 64 * 1024

#: How long a slot with a full chain waits for its rewrite.
REWRITE_SECONDS: Final = 600.0

Start = Literal["hot", "promoted", "rolled back", "restored"]


@dataclasses.dataclass(frozen=True, slots=True)
class SlotStatistics:
    """Counts of a slot."""

    starts: dict[str, int]
    prepared: int
    delta_bytes: int
    waits: int
    rewrites: BackgroundStatistics | None


class SlotCheckpoint:
    """The state of one slot, from transaction to transaction."""

    def __init__(
        self,
        make_backend: Callable[[KeyGroupRange], KeyedStateBackend],
        storage: Storage | None,
        *,
        policy: ChainPolicy = DEFAULT_POLICY,
        inline_bytes: int = INLINE_BYTES,
        state_limit: int | None = None,
        rewrite_seconds: float = REWRITE_SECONDS,
        compared: bool = False,
    ) -> None:
        """`make_backend` returns an empty backend with the declared states. Without a storage everything travels
        inside tasks and acknowledgements; then no state may encode to more than `state_limit` bytes. If other slots
        hold the same state, it is `compared`: acknowledgements have checksums of it, and its states are maps."""
        self._make_backend = make_backend
        self._storage = storage
        self._policy = policy
        self._inline_bytes = inline_bytes
        self._limit = None if state_limit is None else StateLimit(state_limit)
        self._rewrite_seconds = rewrite_seconds
        self._checksum = StateChecksum() if compared else None
        self._writer = None if storage is None else BackgroundWriter(storage)
        self._backend: KeyedStateBackend | None = None
        self._committed: KeyedStateSnapshot | None = None
        self._attempt = ""
        self._prepared: str | None = None
        self._task: SlotTask | None = None
        self._rewrite: Rewrite | None = None  # written, not yet in a task's chain
        self._starts: dict[str, int] = {}
        self._prepares = self._delta_bytes = self._waits = 0

    @property
    def backend(self) -> KeyedStateBackend:
        """The state, between `start` and `prepare`."""
        if self._backend is None:
            raise LifecycleError("the slot holds no state: start a task first")
        return self._backend

    @property
    def committed(self) -> KeyedStateSnapshot:
        """The snapshot where the transaction started. This object releases it."""
        if self._committed is None:
            raise LifecycleError("the slot holds no state: start a task first")
        return self._committed

    def start(self, task: SlotTask) -> Start:
        """Bring the state to the task's starting point; return how."""
        how = self._reach(task)
        self._starts[how] = self._starts.get(how, 0) + 1
        self._task = task
        self._look_after_rewrite(task)
        return how

    def prepare(
        self,
        outputs: Sequence[tuple[str, int, bytes]] = (),
        *,
        max_event_time: int | None = None,
        input_times: tuple[int | None, ...] = (),
        counts: dict[str, int] | None = None,
        attempt: str | None = None,
        parquet: Collection[str] = (),
    ) -> Acknowledgement:
        """Make the transaction's changes and its outputs (name, rows, content) durable.

        The contents of the outputs that `parquet` names are Parquet files, and get files of their own; the others are
        Arrow streams.

        `attempt` names the prepared state (default: a new id). Slots that hold the same state, as all do with
        broadcast state, pass the same name, so that all of them can start from what one prepared. A name must never be
        used for another state.

        Raises:
            StateTypeError: a value is not of its declared type; roll back.
            StorageError: a write failed, now or in the background since the last call; roll back and try again.
        """
        task, committed = self._task, self._committed
        if task is None or committed is None or self._prepared is not None:
            raise LifecycleError("nothing to prepare: start a task first")
        self._fetch_rewrite()
        delta = write_delta(self.backend, committed)
        if self._checksum is not None and delta.counts.rows:
            self._checksum.apply(delta.data)
        written = self._written(task, delta)
        attempt = new_id() if attempt is None else attempt
        acknowledgement = Acknowledgement(
            operator=task.operator,
            slot=task.slot,
            number=task.number,
            attempt=attempt,
            started_from=self._attempt,
            state=written,
            outputs=tuple(
                self._output(task, *output, "parquet" if output[0] in parquet else "arrow") for output in outputs
            ),
            rewrite=self._rewrite,
            rewriting=self._rewriting(),
            max_event_time=max_event_time,
            input_times=input_times,
            checksums={} if self._checksum is None else self._checksum.totals(),
            counts={**(counts or {}), "delta_rows": delta.counts.rows, "delta_bytes": delta.counts.size},
        )
        self._prepared = attempt
        self._prepares += 1
        self._delta_bytes += delta.counts.size
        return acknowledgement

    def roll_back(self) -> None:
        """Undo the current transaction, prepared or not."""
        if self._backend is not None and self._committed is not None:
            self._backend.roll_back(self._committed)
        if self._checksum is not None:
            self._checksum.roll_back()
        self._task = self._prepared = None

    @property
    def moved_bytes(self) -> int:
        """The bytes read from the storage and written to it so far; any thread may ask."""
        if self._storage is None:
            return 0
        done = self._storage.statistics()
        return done.bytes_read + done.bytes_written

    def statistics(self) -> SlotStatistics:
        """Return the counts so far."""
        rewrites = None if self._writer is None else self._writer.statistics()
        return SlotStatistics(dict(self._starts), self._prepares, self._delta_bytes, self._waits, rewrites)

    def close(self) -> None:
        """Drop the state and stop a rewrite; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
        self._drop()

    # -- reaching a starting point --------------------------------------------------------------------------

    def _reach(self, task: SlotTask) -> Start:
        try:
            how = self._reach_hot(task)
        except StorageError as error:
            # The hot state is unusable now; it is only a copy.
            _log.warning("slot %d of operator %r restores from the checkpoint: %s", task.slot, task.operator, error)
            how = None
        return self._restore(task) if how is None else how

    def _reach_hot(self, task: SlotTask) -> Start | None:
        """Bring the hot state to the task's starting point; None if that is impossible."""
        wanted = task.chain.attempt
        if self._backend is None or self._backend.context.key_group_range != task.chain.key_groups:
            return None
        if self._prepared == wanted:
            self._promote(wanted)
            return "promoted"
        how: Start = "hot"
        if self._task is not None:
            self.roll_back()
            how = "rolled back"
        return how if self._attempt == wanted else None

    def _promote(self, attempt: str) -> None:
        old, self._committed = self._committed, self.backend.snapshot()
        if old is not None:
            old.release()
        if self._checksum is not None:
            self._checksum.commit()
        self._attempt, self._prepared, self._task = attempt, None, None

    def _restore(self, task: SlotTask) -> Start:
        self._drop()
        backend = self._make_backend(task.chain.key_groups)
        try:
            readers = [open_state_file(self._storage, file, contents=task.contents) for file in task.chain.files]
            parts = [
                FileSlice(reader, file.key_groups, file.decisions)
                for reader, file in zip(readers, task.chain.files, strict=True)
            ]
            past_choices = PastChoices.from_dict(task.settled) if task.settled else NO_PAST_CHOICES
            restore(parts, backend, RestoreChoices(keep_states=task.keep_states), past_choices=past_choices)
        except BaseException:
            backend.close()  # incomplete
            raise
        self._backend = backend
        if self._checksum is not None:
            self._checksum = StateChecksum()
            self._checksum.apply(self._whole().data)
        self._promote(task.chain.attempt)
        return "restored"

    def _drop(self) -> None:
        if self._committed is not None:
            self._committed.release()
        if self._backend is not None:
            self._backend.close()
        self._backend = self._committed = self._task = self._prepared = self._rewrite = None
        self._attempt = ""

    # -- writing --------------------------------------------------------------------------------------------

    def _written(self, task: SlotTask, delta: WrittenFile) -> WrittenState | None:
        if delta.counts.rows == 0:
            return None
        if self._storage is None:
            return self._kept_small(task, delta)
        if self._is_full(task):
            return self._state(task, "base", self._whole())
        return self._state(task, "delta", delta)

    def _is_full(self, task: SlotTask) -> bool:
        """Wait for a rewrite if the chain is full; return whether it still is."""
        deltas = sum(file.kind == "delta" for file in task.chain.files)  # a large base may be many files
        if deltas < self._policy.most_files or self._rewrite is not None:
            return False
        self._waits += 1
        if self._writer is not None and not self._writer.wait(self._rewrite_seconds):
            raise StorageError(
                errno.ETIMEDOUT,
                f"slot {task.slot} of operator {task.operator!r} has {deltas} deltas, and their rewrite did not end "
                f"within {self._rewrite_seconds:.0f} s: the storage is too slow for this rate of batches. Nothing is "
                f"lost. Make batches larger, or the storage faster.",
                operator=task.operator,
                slot=task.slot,
                batch=task.batch.id,
            )
        self._fetch_rewrite()
        return self._rewrite is None

    def _kept_small(self, task: SlotTask, delta: WrittenFile) -> WrittenState:
        """Return a delta, or the whole state if the chain is long or a state may exceed the limit."""
        limit = self._limit
        if len(task.chain.files) < self._policy.rewrite_at and (limit is None or limit.fits(task, delta)):
            return self._state(task, "delta", delta)
        whole = self._whole()
        if limit is not None:
            limit.check(task, whole)
        return self._state(task, "base", whole)

    def _whole(self) -> WrittenFile:
        with self.backend.snapshot() as now:
            writer = BaseWriter(self.backend, now)
            data = b"".join(writer)
        return WrittenFile(data, writer.counts(), writer.seal)

    def _state(self, task: SlotTask, kind: Literal["base", "delta"], file: WrittenFile) -> WrittenState:
        ident = new_id()
        content, place = self._stored(state_path(task.holder.incarnation, ident), file.data)
        return WrittenState(ident, kind, task.chain.groups, file.seal, content, place)

    def _output(self, task: SlotTask, name: str, rows: int, data: bytes, format: OutputFormat) -> WrittenOutput:
        path = output_path(task.holder.incarnation, new_id())
        if format == "parquet" and self._storage is not None:
            return WrittenOutput(name, rows, None, store_file(self._storage, path, [data]), format)
        return WrittenOutput(name, rows, *self._stored(path, data), format)

    def _stored(self, path: str, data: bytes) -> tuple[bytes | None, FileRef | None]:
        if self._storage is None or len(data) <= self._inline_bytes:
            return data, None
        return None, store_file(self._storage, path, [data])

    # -- rewriting in the background ------------------------------------------------------------------------

    def _look_after_rewrite(self, task: SlotTask) -> None:
        """Drop a rewrite that was adopted or is no longer ordered; begin one that is ordered."""
        order = task.rewrite
        if self._rewrite is not None and (order is None or order.id != self._rewrite.order):
            self._rewrite = None
        if order is None or self._writer is None or self._writer.order is not None or self._rewrite is not None:
            return
        if order.chain.attempt == self._attempt:  # the committed state, before this transaction changes it
            self._writer.begin(order, self.backend, self.backend.snapshot(), task.holder.incarnation)

    def _fetch_rewrite(self) -> None:
        if self._writer is None:
            return
        try:
            found = self._writer.result()
        except Exception as error:
            raise self._background_failure(error) from error
        order = None if self._task is None else self._task.rewrite
        if found is not None and order is not None and order.id == found.order:
            self._rewrite = found

    def _background_failure(self, error: Exception) -> StorageError:
        number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
        known = error.place if isinstance(error, EmberstateError) else Place()
        failure = StorageError(
            number,
            f"writing a base or merged delta in the background failed: {error}. Nothing is lost: the deltas hold all "
            f"committed state. Run the batch again; the rewrite is repeated too.",
            **known,
        )
        return failure if self._task is None else failure.located(operator=self._task.operator, slot=self._task.slot)

    def _rewriting(self) -> str:
        if self._rewrite is not None:
            return self._rewrite.order
        order = None if self._writer is None else self._writer.order
        return "" if order is None else order.id
