"""A small job to drive: coordinator and slots in one process, and a model of what they should hold.

Every row is a key. The job counts it, appends the batch to a list, and remembers the batch in a map and a
timer queue. Messages go over the wire both ways, as they do between processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from emberstate.checkpoint.backends import FsStateBackend, StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from emberstate.storage.memory import MemoryStorage

KEYS = KeySchema.from_python(str)
GROUPS = 8
OPERATOR = "counts"
COUNT = ValueStateDescriptor("count", int, default=0)
LOG = ListStateDescriptor("log", int)
SEEN = MapStateDescriptor("seen", str, int)

M = TypeVar("M", SlotTask, Acknowledgement)

Content = dict[str, tuple[int, list[int], dict[str, int], list[int]]]


class SharedMemoryStorage(MemoryStorage):
    """Files in memory that slots of the same process reach: a file system without a disk."""

    shared = True


class SharedMemoryBackend(StateBackend):
    """As `FsStateBackend`, without a disk."""

    def __init__(self, storage: Storage | None = None) -> None:
        self.storage = SharedMemoryStorage() if storage is None else storage

    def open_storage(self) -> Storage:
        return self.storage

    def open_slot_storage(self) -> Storage:
        return self.storage

    def scratch(self) -> SharedMemoryBackend:
        return SharedMemoryBackend()

    def discard(self) -> None:
        self.storage.delete_all(self.storage.list())


def declare(backend: KeyedStateBackend) -> None:
    for descriptor in (COUNT, LOG, SEEN):
        backend.get_partitioned_state(descriptor)
    backend.get_timer_queue("event")


def apply(backend: KeyedStateBackend, batch: int, rows: Sequence[str]) -> None:
    """Run a batch's rows that the backend owns."""
    count, log, seen = (backend.get_partitioned_state(descriptor) for descriptor in (COUNT, LOG, SEEN))
    timers = backend.get_timer_queue("event")
    owned = backend.context.key_group_range
    for row in rows:
        if owned.start <= KEYS.key_group(row, backend.context.max_parallelism) <= owned.end:
            backend.set_current_key(row)
            count.update(count.value() + 1)
            log.add(batch)
            seen[f"b{batch % 5}"] = batch
            timers.register(batch, "t")


def content_of(backend: Any) -> Content:
    tables = {name: dict[str, Any]() for name in ("count", "log", "seen")}
    for name, found in tables.items():
        for key, _, value in backend.registered_kv_states[name]:
            found[key] = copy.deepcopy(value)
    timers = {key: sorted(time for time, _, _ in found) for key, _, found in backend.get_timer_queue("event").table}
    return {
        key: (tables["count"][key], list(tables["log"][key]), dict(tables["seen"][key]), timers[key])
        for key in tables["count"]
    }


def rows_of(batch: int) -> list[str]:
    """The rows of a batch: always the same."""
    return [f"k{(batch * 7 + i * i) % 23}" for i in range(6)]


def expected_after(batches: int, rows: Callable[[int], Sequence[str]] = rows_of) -> Content:
    """What the job holds after batches 0 to `batches` - 1."""
    model: Content = {}
    for batch in range(batches):
        for row in rows(batch):
            count, log, seen, times = model.get(row, (0, [], {}, []))
            model[row] = (count + 1, [*log, batch], {**seen, f"b{batch % 5}": batch}, sorted({*times, batch}))
    return model


class CountingJob:
    """One start of the job."""

    def __init__(
        self, backend: StateBackend | None = None, parallelism: int = 1, *, groups: int = GROUPS, **options: Any
    ) -> None:
        self.backend = SharedMemoryBackend() if backend is None else backend
        self.groups = groups
        self.storage = self.backend.open_storage()
        spec = OperatorSpec(name=OPERATOR, key_schema=KEYS, parallelism=parallelism, max_parallelism=groups)
        self.coordinator = CheckpointCoordinator.open(self.storage, "job", [spec], **options)
        self.slots = self.make_slots(parallelism)
        last = self.coordinator.latest.batch
        self.next_batch = 0 if last is None else last.id + 1

    def make_slots(self, parallelism: int | None = None) -> list[SlotCheckpoint]:
        count = self.coordinator.latest.operators[0].parallelism if parallelism is None else parallelism
        return [self.backend.make_slot(KEYS, declare, max_parallelism=self.groups) for _ in range(count)]

    def begin(self, batch: int | None = None, **options: Any) -> Transaction:
        """Begin the next batch, which must not be a redelivery."""
        number = self.next_batch if batch is None else batch
        begun = self.coordinator.begin(number, **{"query": "q", "source": str(number), **options})
        assert not isinstance(begun, Redelivery)
        return begun

    def prepare(
        self, transaction: Transaction, slots: Sequence[SlotCheckpoint] | None = None, rows: Sequence[str] | None = None
    ) -> list[Acknowledgement]:
        """Run a batch on the slots and let them prepare."""
        batch = transaction.batch.id
        acknowledgements = []
        for task, slot in zip(transaction.tasks, self.slots if slots is None else slots, strict=True):
            slot.start(over_the_wire(task))
            apply(slot.backend, batch, rows_of(batch) if rows is None else rows)
            output = f"slot {task.slot} batch {batch}".encode()
            acknowledgements.append(over_the_wire(slot.prepare([("main", 1, output)], max_event_time=batch)))
        return acknowledgements

    def run(self, batches: int = 1) -> Manifest:
        """Run and commit batches."""
        for _ in range(batches):
            transaction = self.begin()
            self.coordinator.commit(transaction, self.prepare(transaction))
            self.next_batch += 1
        return self.coordinator.latest

    def content(self) -> Content:
        """What the slots hold."""
        found: Content = {}
        for slot in self.slots:
            part = content_of(slot.backend)
            assert not found.keys() & part.keys()
            found |= part
        return found

    def restored(self) -> Content:
        """What new slots make of the latest checkpoint."""
        transaction = self.begin(self.next_batch)
        slots = self.make_slots()
        found: Content = {}
        for task, slot in zip(transaction.tasks, slots, strict=True):
            assert slot.start(over_the_wire(task)) == "restored"
            slot.backend.check_invariants()
            found |= content_of(slot.backend)
            slot.close()
        return found

    def close(self) -> None:
        for slot in self.slots:
            slot.close()


def over_the_wire(message: M) -> M:
    return type(message).from_bytes(message.to_bytes())


def file_job(path: Any, parallelism: int = 1, **options: Any) -> CountingJob:
    """The job with its checkpoints in a directory."""
    return CountingJob(FsStateBackend(path), parallelism, **options)
