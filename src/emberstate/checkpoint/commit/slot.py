"""`SlotCheckpoint`: a slot's side of the checkpoints. It holds the slot's state between transactions, brings
it to where a transaction starts, and prepares what the transaction changed.

    start(task) → the backend is at the task's starting point; the host runs the batch on it
    prepare(…)  → what changed is durable (or travels inside the answer); nothing is committed by that
    start(next) → if the next task starts from what was prepared, it was committed: go on, at no cost

Which state it holds is known by the attempt that made it, an id that is never used twice. If that is not what
a task starts from, the state is rolled back, or thrown away and restored. So nothing is right because a slot
was found again; it is only faster.

Invariants: `_attempt` names the committed state, which `_committed` can be rolled back to; at most one
attempt is prepared; a transaction that is neither prepared nor rolled back is rolled back by the next start.

Thread safety: one owner thread, the backend's.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Literal

from emberstate.checkpoint.commit.background_writer import BackgroundStatistics, BackgroundWriter
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask, WrittenOutput, WrittenState
from emberstate.checkpoint.commit.state_checksum import StateChecksum
from emberstate.checkpoint.files.reader import StateFileReader, check_state_sizes, state_sizes
from emberstate.checkpoint.files.writer import BaseWriter, WrittenFile, write_delta
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy, Rewrite
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, PastChoices
from emberstate.checkpoint.manifest.layout import new_id, output_path, state_path
from emberstate.checkpoint.manifest.model import FileRef
from emberstate.checkpoint.manifest.open_files import open_state_file, store_file
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import LifecycleError, StorageError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.storage.interface import Storage

_log = logging.getLogger("emberstate.checkpoint")

#: A delta or output up to this size travels inside the acknowledgement.
INLINE_BYTES: Final = 64 * 1024

#: How long a slot whose chain is full waits for the rewrite that makes it short.
REWRITE_SECONDS: Final = 600.0

Start = Literal["hot", "promoted", "rolled back", "restored"]


@dataclasses.dataclass(frozen=True, slots=True)
class SlotStatistics:
    """What a slot has done."""

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
        """`make_backend` gives an empty backend with the states declared. Without a storage everything travels
        inside tasks and acknowledgements; then no state may encode to more than `state_limit` bytes. What other slots
        hold, too, is `compared`: acknowledgements have checksums of all of it; its states are maps."""
        self._make_backend = make_backend
        self._storage = storage
        self._policy = policy
        self._inline_bytes = inline_bytes
        self._state_limit = state_limit
        self._rewrite_seconds = rewrite_seconds
        self._checksum = StateChecksum() if compared else None
        self._writer = None if storage is None else BackgroundWriter(storage)
        self._backend: KeyedStateBackend | None = None
        self._committed: KeyedStateSnapshot | None = None
        self._attempt = ""
        self._prepared: str | None = None
        self._task: SlotTask | None = None
        self._rewrite: Rewrite | None = None  # written, not yet seen in a task's chain
        self._sizes: dict[str, dict[str, int]] = {}  # by file of the chain: bytes of its states
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
        """Where the transaction started: what it is rolled back to. It stays this object's to release."""
        if self._committed is None:
            raise LifecycleError("the slot holds no state: start a task first")
        return self._committed

    def start(self, task: SlotTask) -> Start:
        """Bring the state to where the task starts; says how."""
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
    ) -> Acknowledgement:
        """Make what the transaction changed, and its outputs (name, rows, content), durable.

        `attempt` names what is prepared (default: a new id). Slots that hold one state together, as all do with
        broadcast state, give it the same name, so that what one of them prepared is everybody's next start. It
        must never name anything else.

        Raises:
            StateTypeError: a value is not of its declared type; roll back.
            StorageError: writing failed, now or in the background since the last time; roll back and try again.
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
            outputs=tuple(self._output(task, *output) for output in outputs),
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
        """Undo the transaction that was started, prepared or not."""
        if self._backend is not None and self._committed is not None:
            self._backend.roll_back(self._committed)
        if self._checksum is not None:
            self._checksum.roll_back()
        self._task = self._prepared = None

    @property
    def moved_bytes(self) -> int:
        """What was read from the storage and written to it so far; any thread may ask."""
        if self._storage is None:
            return 0
        done = self._storage.statistics()
        return done.bytes_read + done.bytes_written

    def statistics(self) -> SlotStatistics:
        """What was done so far."""
        rewrites = None if self._writer is None else self._writer.statistics()
        return SlotStatistics(dict(self._starts), self._prepares, self._delta_bytes, self._waits, rewrites)

    def close(self) -> None:
        """Drop the state and end what runs in the background; a second call does nothing."""
        if self._writer is not None:
            self._writer.close()
        self._drop()

    # -- reaching a starting point --------------------------------------------------------------------------

    def _reach(self, task: SlotTask) -> Start:
        try:
            how = self._reach_hot(task)
        except StorageError as error:
            # The state that is held cannot be brought anywhere any more; it is only a copy.
            _log.warning("Slot %d of operator %r restores from the checkpoint: %s", task.slot, task.operator, error)
            how = None
        return self._restore(task) if how is None else how

    def _reach_hot(self, task: SlotTask) -> Start | None:
        """Bring the state that is held to where the task starts; None if it cannot be."""
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
            backend.close()  # half filled: of no use
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
        """Whether the chain has no room for another delta, though a rewrite was waited for."""
        deltas = sum(file.kind == "delta" for file in task.chain.files)  # a large base is many files, and may be
        if deltas < self._policy.most_files or self._rewrite is not None:
            return False
        self._waits += 1
        if self._writer is not None and not self._writer.wait(self._rewrite_seconds):
            raise StorageError(
                errno.ETIMEDOUT,
                f"slot {task.slot} of operator {task.operator!r} has {deltas} deltas, and "
                f"rewriting them did not end within {self._rewrite_seconds:.0f} s: the storage is too slow for this "
                f"rate of batches. Nothing is lost; make batches larger, or the storage faster.",
            )
        self._fetch_rewrite()
        return self._rewrite is None

    def _kept_small(self, task: SlotTask, delta: WrittenFile) -> WrittenState:
        """A delta, or the whole state if the chain gets long or a state might be larger than it may be."""
        limit = self._state_limit
        if len(task.chain.files) < self._policy.rewrite_at and (
            limit is None or self._largest(task, delta) <= limit
        ):
            return self._state(task, "delta", delta)
        whole = self._whole()
        if limit is not None:
            check_state_sizes(StateFileReader.of_bytes(whole.data), limit, task.operator)
        return self._state(task, "base", whole)

    def _largest(self, task: SlotTask, delta: WrittenFile) -> int:
        """A bound on the largest state: what the chain and the delta hold of it, superseded or not."""
        total: Counter[str] = Counter(state_sizes(StateFileReader.of_bytes(delta.data)))
        for file in task.chain.files:
            if file.id not in self._sizes:
                self._sizes[file.id] = state_sizes(open_state_file(None, file, contents=task.contents))
            total.update(self._sizes[file.id])
        self._sizes = {file.id: self._sizes[file.id] for file in task.chain.files}
        return max(total.values(), default=0)

    def _whole(self) -> WrittenFile:
        with self.backend.snapshot() as now:
            writer = BaseWriter(self.backend, now)
            data = b"".join(writer)
        return WrittenFile(data, writer.counts(), writer.seal)

    def _state(self, task: SlotTask, kind: Literal["base", "delta"], file: WrittenFile) -> WrittenState:
        ident = new_id()
        content, place = self._stored(state_path(task.holder.incarnation, ident), file.data)
        return WrittenState(ident, kind, task.chain.groups, file.seal, content, place)

    def _output(self, task: SlotTask, name: str, rows: int, data: bytes) -> WrittenOutput:
        return WrittenOutput(name, rows, *self._stored(output_path(task.holder.incarnation, new_id()), data))

    def _stored(self, path: str, data: bytes) -> tuple[bytes | None, FileRef | None]:
        if self._storage is None or len(data) <= self._inline_bytes:
            return data, None
        return None, store_file(self._storage, path, [data])

    # -- rewriting in the background ------------------------------------------------------------------------

    def _look_after_rewrite(self, task: SlotTask) -> None:
        """Forget a rewrite that was adopted or is not wanted any more; begin one that is."""
        order = task.rewrite
        if self._rewrite is not None and (order is None or order.id != self._rewrite.order):
            self._rewrite = None
        if order is None or self._writer is None or self._writer.order is not None or self._rewrite is not None:
            return
        if order.chain.attempt == self._attempt:  # the state as committed, before this transaction touches it
            self._writer.begin(order, self.backend, self.backend.snapshot(), task.holder.incarnation)

    def _fetch_rewrite(self) -> None:
        if self._writer is None:
            return
        try:
            found = self._writer.result()
        except Exception as error:
            raise _background_failure(error) from error
        order = None if self._task is None else self._task.rewrite
        if found is not None and order is not None and order.id == found.order:
            self._rewrite = found

    def _rewriting(self) -> str:
        if self._rewrite is not None:
            return self._rewrite.order
        order = None if self._writer is None else self._writer.order
        return "" if order is None else order.id


def _background_failure(error: Exception) -> StorageError:
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return StorageError(
        number,
        f"a base or merged delta could not be written in the background: {error}. Nothing is lost: all that was "
        f"committed is in the deltas. Run the batch again; the rewrite is tried again as well.",
    )
