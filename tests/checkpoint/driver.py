"""The driver of the checkpoint tests: a job in one process, run batch by batch, with a model of its state beside it.

A `Job` is a coordinator and its slots over a state backend or a storage; what it computes, a `Work` says. Messages
between coordinator and slots pass through their bytes, as between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.checkpoint.manifest.layout import CONDEMNED
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import Clock, SystemClock
from emberstate.errors import StorageError
from emberstate.storage.interface import Storage
from tests.checkpoint.stored import StorageBackend, add_part, read_content, read_output
from tests.checkpoint.work import Content, Work
from tests.patience import PATIENCE

M = TypeVar("M", SlotTask, Acknowledgement)

#: Rewrites begin soon, and both kinds of them happen.
SHORT_CHAINS = ChainPolicy(most_files=6, rewrite_at=3, small_bytes=4096)


class Job:
    """A coordinator and its slots. Slots may outlive the coordinator, as executors do.

    `steady` waits for every rewrite as soon as it has begun, so that the order of storage calls is fixed.
    Keyword arguments that are not named go to `CheckpointCoordinator.open`, at every `open`.
    """

    def __init__(
        self,
        store: StateBackend | Storage | None,
        *works: Work,
        parallelism: int = 1,
        policy: ChainPolicy = DEFAULT_POLICY,
        inline_bytes: int | None = None,
        slot_storage: Storage | None = None,
        steady: bool = False,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self.backend = store if isinstance(store, StateBackend) else StorageBackend(store, slot_storage)
        self.storage = self.backend.open_storage()
        self.works = {work.name: work for work in works}
        self.work = works[0]
        self.parallelism = parallelism
        self.policy = policy
        self.inline_bytes = inline_bytes
        self.steady = steady
        self.clock: Any = SystemClock() if clock is None else clock
        self.options = options
        self.query = "q"
        self.slots: dict[tuple[str, int], SlotCheckpoint] = {}
        self.model: Content = {}
        self.models: dict[str, Content] = {}  # by the id of a checkpoint that this object opened or committed
        self.delivered: dict[int, list[str]] = {}  # by batch: the lines of its output, sorted
        self.opened: CheckpointCoordinator | None = None

    # -- starts -----------------------------------------------------------------------------------------------

    def open(self, *, keep_slots: bool = False, **options: Any) -> CheckpointCoordinator:
        """Take the job over, from the newest checkpoint or as the options say, with new slots or those there are."""
        if not keep_slots:
            self.close()
        specs = [
            OperatorSpec(
                name=work.name,
                key_schema=work.keys,
                parallelism=work.parallelism or self.parallelism,
                max_parallelism=work.groups,
                **work.spec_options,
            )
            for work in self.works.values()
        ]
        options = {"policy": self.policy, "clock": self.clock, **self.options, **options}
        self.opened = CheckpointCoordinator.open(self.storage, "job", specs, **options)
        latest = self.opened.latest
        if latest.parent is not None:
            self.model = self.models.get(latest.parent.id, self.model)
        elif latest.saved_batch is None:
            self.model = {}
        self.models[latest.id] = self.model
        return self.opened

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The coordinator of the last `open`."""
        assert self.opened is not None, "the job is not open"
        return self.opened

    @property
    def next_batch(self) -> int:
        """The batch that follows the latest checkpoint, or the savepoint it was opened from."""
        latest = self.coordinator.latest
        last = latest.saved_batch if latest.batch is None else latest.batch
        return self.options.get("first_batch", 0) if last is None else last.id + 1

    def slot(self, number: int = 0, operator: str | None = None) -> SlotCheckpoint:
        """A slot, of the first operator unless said otherwise; made when it is first asked for."""
        key = (operator or self.work.name, number)
        if key not in self.slots:
            self.slots[key] = self.make_slot(operator)
        return self.slots[key]

    def make_slot(self, operator: str | None = None) -> SlotCheckpoint:
        """A slot that is not one of the job's."""
        work = self.works[operator or self.work.name]
        slot = self.backend.make_slot(work.keys, work.declare, max_parallelism=work.groups, policy=self.policy)
        slot._rewrite_seconds = PATIENCE
        if self.inline_bytes is not None:
            slot._inline_bytes = self.inline_bytes
        return slot

    def wait_for_rewrites(self) -> None:
        """Until nothing runs in the background of any slot."""
        for slot in self.slots.values():
            wait_for_rewrite(slot)

    def close(self) -> None:
        """End the slots: the executors are gone."""
        for slot in self.slots.values():
            slot.close()
        self.slots = {}

    # -- batches ----------------------------------------------------------------------------------------------

    def begin(self, batch: int | None = None, **options: Any) -> Transaction:
        """Begin the next batch, or one that is not a redelivery."""
        begun = self.offer(batch, **options)
        assert not isinstance(begun, Redelivery)
        return begun

    def offer(self, batch: int | None = None, **options: Any) -> Transaction | Redelivery:
        """Begin a batch; a redelivery if it has been committed before."""
        number = self.next_batch if batch is None else batch
        now = self.work.time(number)
        if now is not None:
            self.clock.set(now)
            options = {"watermark": now, **options}
        return self.coordinator.begin(number, **{"query": self.query, "source": str(number), **options})

    def start(self, sent: SlotTask) -> SlotCheckpoint:
        """Start a task in its slot."""
        task = over_the_wire(sent)
        slot = self.slot(task.slot, task.operator)
        slot.start(task)
        slot.backend.ttl_clock.processing_time = task.batch.processing_time
        slot.backend.ttl_clock.event_time = task.batch.watermark
        if self.steady:
            wait_for_rewrite(slot)
        return slot

    def prepare(self, transaction: Transaction, rows: Sequence[Any] | None = None) -> list[Acknowledgement]:
        """Run the batch in all slots and let them prepare."""
        given = self.work.rows(transaction.batch.id) if rows is None else rows
        acknowledgements = []
        for task in transaction.tasks:
            slot = self.start(task)
            outputs = self.works[task.operator].process(slot.backend, task, given)
            acknowledgements.append(over_the_wire(slot.prepare(outputs, max_event_time=task.batch.id)))
        return acknowledgements

    def commit(self, transaction: Transaction, rows: Sequence[Any] | None = None) -> Manifest:
        """Run a batch that was begun, and commit it."""
        batch = transaction.batch.id
        given = self.work.rows(batch) if rows is None else rows
        manifest = self.coordinator.commit(transaction, self.prepare(transaction, given))
        self.models[manifest.id] = self.model = self.work.after(self.model, batch, given)
        return manifest

    def run_batch(self, batch: int | None = None) -> Manifest:
        """Run the next batch, or one that may have been committed before, and deliver its output."""
        begun = self.offer(batch)
        manifest = begun.manifest if isinstance(begun, Redelivery) else self.commit(begun)
        assert manifest.batch is not None
        self.delivered[manifest.batch.id] = read_output(self.storage, manifest)
        return manifest

    def feed(self, *rows: Any, **options: Any) -> Manifest:
        """Run and commit a batch of given rows."""
        return self.commit(self.begin(**options), rows)

    def run(self, batches: int = 1) -> Manifest:
        """Run and commit batches."""
        for _ in range(batches):
            self.commit(self.begin())
        return self.coordinator.latest

    def run_until(self, until: int, committed: Callable[[int], object] | None = None) -> None:
        """Run batches up to `until`, without it, and deliver their output."""
        while self.next_batch < until:
            batch = self.next_batch
            self.run_batch()
            if committed is not None:
                committed(batch)

    def run_through(self, until: int, tries: int = 20) -> list[StorageError]:
        """The same through failures of the storage: what failed is rolled back and run again."""
        failures: list[StorageError] = []
        batch: int | None = None  # the one that was begun and not delivered
        while self.opened is None or batch is not None or self.next_batch < until:
            try:
                if self.opened is None:
                    self.open()
                    continue
                batch = self.next_batch if batch is None else batch
                self.run_batch(batch)
                batch = None
            except StorageError as error:
                failures.append(error)
                assert len(failures) < tries, failures
                self.roll_back()
        return failures

    def roll_back(self) -> None:
        """Roll all slots back to where the batch began."""
        for slot in self.slots.values():
            slot.roll_back()

    # -- what it holds ----------------------------------------------------------------------------------------

    def content(self) -> Content:
        """What the slots hold, between batches."""
        found: Content = {}
        for operator in self.coordinator.latest.operators:
            for number in range(operator.parallelism):
                backend = self.slot(number, operator.name).backend
                backend.check_invariants()
                add_part(found, self.works[operator.name].content(backend))
        return found

    def restored(self) -> Content:
        """What new slots make of the latest checkpoint: the next batch begins in them, and is left."""
        found: Content = {}
        for task in self.begin().tasks:
            slot = self.make_slot(task.operator)
            assert slot.start(over_the_wire(task)) == "restored"
            slot.backend.check_invariants()
            add_part(found, self.works[task.operator].content(slot.backend))
            slot.close()
        return found

    def stored(self, storage: Storage, manifest: Manifest) -> Content:
        """What a checkpoint or savepoint holds; takes nothing over."""
        return read_content(storage, manifest, *self.works.values())

    def check(self, storage: Storage, manifest: Manifest) -> None:
        """A checkpoint is whole, and holds what the model held when it was made."""
        found = verify(storage, manifest)
        assert not found.problems, (manifest.describe(), found.problems)
        assert self.stored(storage, manifest) == self.models[manifest.id], manifest.describe()

    def check_all(self, storage: Storage) -> list[int]:
        """The same for every checkpoint that is there and not about to be collected; all numbers."""
        numbers = checkpoint_numbers(storage)
        condemned = {int(path.split("/")[1].split("-")[0]) for path in storage.list(CONDEMNED)}
        for number in numbers:
            if number not in condemned:
                self.check(storage, read_checkpoint(storage, number))
        return numbers


def over_the_wire(message: M) -> M:
    """The message as another process gets it."""
    return type(message).from_bytes(message.to_bytes())


def wait_for_rewrite(slot: SlotCheckpoint) -> None:
    """Until nothing runs in a slot's background."""
    assert slot._writer is None or slot._writer.wait(PATIENCE), "it hangs"
