"""A small real job to break: states of every kind, with time to live and timers, driven batch by batch through
a coordinator and its slots; and an oracle in plain Python.

What a batch holds follows from a seed and its number, and its times from its number. So the oracle, outside
the process that dies, knows the state and the output after every batch, and a committed checkpoint is right
only if it is exactly that.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.manifest.open_files import open_state_file, read_ref
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import ManualClock
from emberstate.errors import StorageError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.config import TtlConfig
from emberstate.storage.interface import Storage
from emberstate.storage.local import FileSystem
from emberstate.storage.memory import MemoryStorage
from tests.patience import PATIENCE

SECOND: Final = 1_000_000
KEYS: Final = tuple(f"k{number:02}" for number in range(24))
SCHEMA: Final = KeySchema.from_python(str)
MAX_PARALLELISM: Final = 6
LIFETIME: Final = 4 * SECOND
QUERY: Final = "query"
PROFILES: Final = "profiles"
AUDIT: Final = "audit"

_TTL = TtlConfig(timedelta(microseconds=LIFETIME))
COUNT = ValueStateDescriptor("count", int)
LOG = ListStateDescriptor("log", str)
SEEN = MapStateDescriptor("seen", str, int)
BEST = ReducingStateDescriptor("best", max, int)
LAST = ValueStateDescriptor("last", str, ttl=_TTL)
RECENT = MapStateDescriptor("recent", str, int, ttl=_TTL)
STATES = (COUNT, LOG, SEEN, BEST, LAST, RECENT)
ROWS = ValueStateDescriptor("rows", int)
TIMERS = "event"

#: Rewrites begin soon, and both kinds of them happen.
POLICY: Final = ChainPolicy(most_files=8, rewrite_at=4, base_ratio=0.5, small_bytes=12_000)
#: A job with this policy waits for every rewrite as soon as it is begun: the order of calls is fixed.
STEADY: Final = ChainPolicy(most_files=4, rewrite_at=4, base_ratio=0.5, small_bytes=12_000)
#: Deltas of large batches are files, those of small ones travel.
INLINE_BYTES: Final = 5_000

OPERATIONS: Final = (
    "count", "log", "seen", "unsee", "best", "last", "recent", "timer", "untimer", "cut", "clear"
)  # fmt: skip

Row = tuple[str, str, Any]
Content = dict[tuple[str, str], dict[str, Any]]


class SharedMemoryStorage(MemoryStorage):
    """Memory that slots of the same process reach: all that storage on disk does, without the disk."""

    shared = True

    def copy(self) -> SharedMemoryStorage:
        """The same files, to go on with twice."""
        other = SharedMemoryStorage()
        for path in self.list():
            other.write_new(path, self.read(path))
        return other


class UnsyncedFileSystem(FileSystem):
    """The real file system without waiting for the disk: a killed process loses nothing by it."""

    def fsync(self, file: int) -> None:
        pass

    def fsync_directory(self, directory: int) -> None:
        pass


# -- what happens in a batch ----------------------------------------------------------------------------------


def time_of(batch: int) -> int:
    """Processing time and watermark of a batch."""
    return (batch + 1) * SECOND


def rows_of(seed: int, batch: int) -> list[Row]:
    """(key, operation, argument) of every row of a batch."""
    chance = random.Random(f"{seed}/{batch}")
    rows: list[Row] = []
    for _ in range(chance.choice((0, 6, 25, 60))):
        key = KEYS[min(chance.randrange(len(KEYS)), chance.randrange(len(KEYS)))]
        operation = chance.choice(("count", "seen", *OPERATIONS))
        argument: Any = chance.randrange(100)
        if operation == "log":
            argument = chance.randbytes(chance.choice((2, 2, 400))).hex()
        elif operation in ("timer", "untimer"):
            argument = time_of(batch) + chance.randrange(-1, 6) * SECOND
        rows.append((key, operation, argument))
    return rows


def name_of(argument: int) -> str:
    """A short name made of a number."""
    return f"n{argument % 7}"


def owned(task: SlotTask, key: str) -> bool:
    """Whether a key is a slot's."""
    return SCHEMA.key_group(key, MAX_PARALLELISM) in task.chain.key_groups


class ProfilesFunction:
    """The first operator: what users write."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.count, self.log, self.seen, self.best, self.last, self.recent = map(backend.get_partitioned_state, STATES)
        self.timers = backend.get_timer_queue(TIMERS)

    def process(self, row: Row) -> list[str]:
        """One row; what goes out."""
        key, operation, argument = row
        self.backend.set_current_key(key)
        match operation:
            case "count":
                self.count.update((self.count.value() or 0) + argument)
                return [f"{key} {self.count.value()} {len(self.seen)} {self.last.value()}"]
            case "log":
                self.log.add(argument)
            case "cut":
                self.log.update(list(self.log.get())[-2:])
            case "seen":
                self.seen[name_of(argument)] = self.seen.get(name_of(argument), 0) + argument
            case "unsee":
                self.seen.remove(name_of(argument))
            case "best":
                self.best.add(argument)
            case "last":
                self.last.update(name_of(argument))
            case "recent":
                self.recent.put(name_of(argument), argument)
            case "timer":
                self.timers.register(argument, "quiet")
            case "untimer":
                self.timers.delete(argument, "quiet")
            case "clear":
                for state in (self.count, self.log, self.seen, self.best, self.last, self.recent):
                    state.clear()
        return []

    def fire(self, until: int) -> list[str]:
        """All timers up to a time."""
        fired = []
        while (timer := self.timers.poll(until)) is not None:
            self.log.add(f"fired {timer.time}")
            fired.append(f"{timer.key} fired {timer.time}")
        return fired


def declare_profiles(backend: KeyedStateBackend) -> None:
    """The states of the first operator."""
    ProfilesFunction(backend)


def declare_audit(backend: KeyedStateBackend) -> None:
    """The state of the second: rows by operation."""
    backend.get_partitioned_state(ROWS)


def run_profiles(slot: SlotCheckpoint, task: SlotTask, rows: Iterable[Row]) -> list[str]:
    """The batch in one slot of the first operator."""
    backend = slot.backend
    backend.ttl_clock.processing_time = task.batch.processing_time
    function = ProfilesFunction(backend)
    out = [line for row in rows if owned(task, row[0]) for line in function.process(row)]
    assert task.batch.watermark is not None
    return out + function.fire(task.batch.watermark)


def run_audit(slot: SlotCheckpoint, task: SlotTask, rows: Iterable[Row]) -> list[str]:
    """The batch in one slot of the second."""
    state = slot.backend.get_partitioned_state(ROWS)
    for _, operation, _ in rows:
        if owned(task, operation):
            slot.backend.set_current_key(operation)
            state.update((state.value() or 0) + 1)
    return []


DECLARE = {PROFILES: declare_profiles, AUDIT: declare_audit}
RUN = {PROFILES: run_profiles, AUDIT: run_audit}


# -- the oracle -----------------------------------------------------------------------------------------------


@dataclass
class Profile:
    """One key, in plain Python; what has a time to live stands beside its stamp."""

    count: int | None = None
    log: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    best: int | None = None
    last: tuple[str, int] | None = None
    recent: dict[str, tuple[int, int]] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)

    def content(self, now: int) -> dict[str, Any]:
        """What can be seen."""
        recent = {name: value for name, (value, stamp) in self.recent.items() if stamp + LIFETIME > now}
        found: dict[str, Any] = {"count": self.count, "log": self.log, "seen": self.seen, "best": self.best}
        found |= {"last": self.visible(now), "recent": recent, "timers": sorted(self.timers)}
        return {name: value for name, value in found.items() if value not in (None, [], {})}

    def visible(self, now: int) -> str | None:
        """`last`, unless it has expired."""
        return None if self.last is None or self.last[1] + LIFETIME <= now else self.last[0]


class Model:
    """The whole state, in plain Python."""

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self.rows: dict[str, int] = {}

    def copy(self) -> Model:
        """The same, to change."""
        return copy.deepcopy(self)

    def content(self, now: int) -> Content:
        """What can be seen."""
        content = {(PROFILES, key): _copied(profile.content(now)) for key, profile in self.profiles.items()}
        content |= {(AUDIT, operation): {"rows": rows} for operation, rows in self.rows.items()}
        return {where: what for where, what in content.items() if what}

    def fire(self, until: int) -> list[str]:
        """All timers up to a time; what goes out."""
        out = []
        for key, profile in self.profiles.items():
            for time in sorted(time for time in profile.timers if time <= until):
                profile.timers.remove(time)
                profile.log.append(f"fired {time}")
                out.append(f"{key} fired {time}")
        return out

    def process(self, row: Row, now: int) -> list[str]:
        """One row; what goes out."""
        key, operation, argument = row
        self.rows[operation] = self.rows.get(operation, 0) + 1
        profile = self.profiles.setdefault(key, Profile())
        match operation:
            case "count":
                profile.count = (profile.count or 0) + argument
                return [f"{key} {profile.count} {len(profile.seen)} {profile.visible(now)}"]
            case "log":
                profile.log.append(argument)
            case "cut":
                del profile.log[:-2]
            case "seen":
                profile.seen[name_of(argument)] = profile.seen.get(name_of(argument), 0) + argument
            case "unsee":
                profile.seen.pop(name_of(argument), None)
            case "best":
                profile.best = argument if profile.best is None else max(profile.best, argument)
            case "last":
                profile.last = (name_of(argument), now)
            case "recent":
                profile.recent[name_of(argument)] = (argument, now)
            case "timer":
                profile.timers.add(argument)
            case "untimer":
                profile.timers.discard(argument)
            case "clear":
                self.profiles[key] = Profile(timers=profile.timers)
        return []


class Oracle:
    """What state and output must be after every batch."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._model = Model()
        self._contents: list[Content] = [{}]  # before the first batch, after batch 0, …
        self._outputs: list[list[str]] = []

    def content(self, batch: int | None) -> Content:
        """The state after a batch; None: before the first."""
        while len(self._contents) <= next_of(batch):
            self._run(len(self._outputs))
        return self._contents[next_of(batch)]

    def output(self, batch: int) -> list[str]:
        """The rows that go out of a batch, sorted."""
        self.content(batch)
        return self._outputs[batch]

    def _run(self, batch: int) -> None:
        now = time_of(batch)
        out = [line for row in rows_of(self._seed, batch) for line in self._model.process(row, now)]
        self._outputs.append(sorted(out + self._model.fire(now)))
        self._contents.append(self._model.content(now))


def _copied(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if hasattr(value, "copy") else value for name, value in content.items()}


# -- what is stored -------------------------------------------------------------------------------------------


def content_of(backend: Any, operator: str, now: int) -> Content:
    """What can be seen in a backend, as the oracle says it."""
    backend.ttl_clock.processing_time = now
    found: Content = {}
    if operator == AUDIT:
        state = backend.get_partitioned_state(ROWS)
        for key in backend.get_keys("rows"):
            backend.set_current_key(key)
            found[operator, key] = {"rows": state.value()}
        return found
    function = ProfilesFunction(backend)
    keys = {key for state in STATES for key in backend.get_keys(state.name)}
    assert keys <= set(KEYS)
    for key in KEYS:
        if SCHEMA.key_group(key, MAX_PARALLELISM) not in backend.context.key_group_range:
            continue
        backend.set_current_key(key)
        profile = Profile(function.count.value(), list(function.log.get()), dict(function.seen), function.best.get())
        profile.timers = {timer.time for timer in function.timers.timers_of_current_key()}
        content = profile.content(now)
        content |= {name: value for name, value in (("last", function.last.value()),) if value is not None}
        content |= {name: value for name, value in (("recent", dict(function.recent)),) if value}
        if content:
            found[operator, key] = content
    return found


def restored_backend(storage: Storage, operator: Operator, slot: int) -> HeapKeyedStateBackend:
    """A slot's state as a checkpoint has it."""
    chain = operator.slots[slot]
    backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=MAX_PARALLELISM, key_group_range=chain.key_groups)
    DECLARE[operator.name](backend)
    backend.ttl_clock.processing_time = 0
    parts = [FileSlice(open_state_file(storage, file), file.key_groups, file.decisions) for file in chain.files]
    restore(parts, backend)
    backend.check_invariants()
    return backend


def read_content(storage: Storage, manifest: Manifest) -> Content:
    """The whole state of a checkpoint. Takes nothing over."""
    now = 0 if manifest.batch is None else manifest.batch.processing_time
    found: Content = {}
    for operator in manifest.operators:
        for slot in range(operator.parallelism):
            part = content_of(restored_backend(storage, operator, slot), operator.name, now)
            assert not part.keys() & found.keys()
            found |= part
    return found


def read_output(storage: Storage, manifest: Manifest) -> list[str]:
    """The rows of a checkpoint's outputs, sorted."""
    lines: list[str] = []
    for output in manifest.outputs:
        content = read_ref(storage, output.place).decode()
        lines += content.splitlines()
        assert output.rows == len(content.splitlines())
    return sorted(lines)


def newest(storage: Storage) -> Manifest | None:
    """The newest checkpoint there is."""
    numbers = checkpoint_numbers(storage)
    return read_checkpoint(storage, numbers[-1]) if numbers else None


def committed_batch(storage: Storage) -> int | None:
    """The batch that the newest checkpoint is the end of; None before the first."""
    manifest = newest(storage)
    return None if manifest is None or manifest.batch is None else manifest.batch.id


def check_stored(storage: Storage, oracle: Oracle, batches: Sequence[int | None] | None = None) -> int | None:
    """Hold the newest checkpoint to the oracle: it is the end of one of `batches`, whole, and exactly right."""
    manifest = newest(storage)
    if manifest is None:
        assert batches is None or None in batches, f"nothing is stored; expected is the end of one of {batches}"
        return None
    batch = None if manifest.batch is None else manifest.batch.id
    assert batches is None or batch in batches, f"{manifest.describe()}; expected is the end of one of {batches}"
    assert verify(storage, manifest).problems == ()
    assert read_content(storage, manifest) == oracle.content(batch), manifest.describe()
    if batch is not None:
        assert read_output(storage, manifest) == oracle.output(batch), manifest.describe()
    return batch


def next_of(batch: int | None) -> int:
    """The batch that follows."""
    return 0 if batch is None else batch + 1


# -- driving --------------------------------------------------------------------------------------------------


class Job:
    """A coordinator and its slots in one process. Slots may outlive the coordinator, as executors do."""

    def __init__(
        self,
        storage: Storage,
        *,
        seed: int,
        parallelism: int = 2,
        policy: ChainPolicy = POLICY,
        slot_storages: Mapping[str, Storage] = MappingProxyType({}),
        rewrite_seconds: float = PATIENCE,
        inline_bytes: int = INLINE_BYTES,
        make_slot: Callable[[str], SlotCheckpoint] | None = None,
    ) -> None:
        self.storage = storage
        self.seed = seed
        self.parallelism = parallelism
        self.policy = policy
        self.clock = ManualClock()
        self.slots: dict[tuple[str, int], SlotCheckpoint] = {}
        self.delivered: dict[int, list[str]] = {}
        self._slot_storages = slot_storages  # by operator; others have the job's
        self._rewrite_seconds = rewrite_seconds  # for operators with a storage of their own; others are patient
        self._inline_bytes = inline_bytes
        self._make_slot = self._new_slot if make_slot is None else make_slot
        self._coordinator: CheckpointCoordinator | None = None

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """The coordinator, once it is open."""
        assert self._coordinator is not None
        return self._coordinator

    @property
    def next_batch(self) -> int:
        """The batch that follows the latest checkpoint."""
        batch = self.coordinator.latest.batch
        return next_of(None if batch is None else batch.id)

    def open(self, **options: Any) -> CheckpointCoordinator:
        """Take the job over. All checkpoints stay, unless told otherwise: tests look at the whole history."""
        options = {"retained": 1_000_000, **options}
        specs = [
            OperatorSpec(name=name, key_schema=SCHEMA, parallelism=parallelism, max_parallelism=MAX_PARALLELISM)
            for name, parallelism in ((PROFILES, self.parallelism), (AUDIT, 1))
        ]
        self._coordinator = CheckpointCoordinator.open(
            self.storage, "job", specs, clock=self.clock, policy=self.policy, **options
        )
        return self._coordinator

    def begin(self, batch: int) -> Transaction | Redelivery:
        """Begin a batch."""
        self.clock.set(time_of(batch))
        return self.coordinator.begin(batch, query=QUERY, source=f"rows of {batch}", watermark=time_of(batch))

    def prepare(self, transaction: Transaction) -> list[Acknowledgement]:
        """Run the batch in all slots; everything passes through its form for the wire."""
        rows = rows_of(self.seed, transaction.batch.id)
        acknowledgements = []
        for sent in transaction.tasks:
            task = SlotTask.from_bytes(sent.to_bytes())
            slot = self.slot(task.operator, task.slot)
            slot.start(task)
            if self.policy is STEADY:
                assert slot._writer is None or slot._writer.wait(PATIENCE), "it hangs"
            out = RUN[task.operator](slot, task, rows)
            outputs = [("out", len(out), "".join(f"{line}\n" for line in out).encode())] if out else []
            acknowledgements.append(Acknowledgement.from_bytes(slot.prepare(outputs).to_bytes()))
        return acknowledgements

    def run_batch(self, batch: int | None = None) -> Manifest:
        """Run the next batch, commit it and deliver its output."""
        transaction = self.begin(self.next_batch if batch is None else batch)
        if isinstance(transaction, Redelivery):
            manifest = transaction.manifest
        else:
            manifest = self.coordinator.commit(transaction, self.prepare(transaction))
        assert manifest.batch is not None
        self.delivered[manifest.batch.id] = read_output(self.storage, manifest)
        return manifest

    def run(self, until: int, committed: Callable[[int], object] | None = None) -> None:
        """Run batches up to `until`, without it."""
        while self.next_batch < until:
            batch = self.next_batch
            self.run_batch()
            if committed is not None:
                committed(batch)

    def run_through(self, until: int, tries: int = 20) -> list[StorageError]:
        """The same through failures of the storage: what failed is rolled back and run again."""
        failures: list[StorageError] = []
        batch: int | None = None  # the one that was begun and not delivered
        while self._coordinator is None or batch is not None or self.next_batch < until:
            try:
                if self._coordinator is None:
                    self.open()
                    continue
                batch = self.next_batch if batch is None else batch
                self.run_batch(batch)
                batch = None
            except StorageError as error:
                failures.append(error)
                assert len(failures) < tries, failures
                for slot in self.slots.values():
                    slot.roll_back()
        return failures

    def slot(self, operator: str, number: int) -> SlotCheckpoint:
        """A slot, made when it is first asked for."""
        if (operator, number) not in self.slots:
            self.slots[operator, number] = self._make_slot(operator)
        return self.slots[operator, number]

    def hot_content(self) -> Content:
        """What the slots hold, between batches."""
        found: Content = {}
        for operator in self.coordinator.latest.operators:
            for number in range(operator.parallelism):
                backend = self.slots[operator.name, number].backend
                backend.check_invariants()
                now = backend.ttl_clock.processing_time
                found |= content_of(backend, operator.name, now or 0)
        return found

    def own(self) -> None:
        """Take the state over for the calling thread."""
        for slot in self.slots.values():
            slot.backend.context.own()

    def lose_slots(self) -> None:
        """The executors are gone."""
        for slot in self.slots.values():
            slot.close()
        self.slots.clear()

    def close(self) -> None:
        """End the threads."""
        self.lose_slots()

    def _new_slot(self, operator: str) -> SlotCheckpoint:
        def make(groups: KeyGroupRange) -> HeapKeyedStateBackend:
            backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=MAX_PARALLELISM, key_group_range=groups)
            DECLARE[operator](backend)
            return backend

        return SlotCheckpoint(
            make,
            self._slot_storages.get(operator, self.storage),
            policy=self.policy,
            inline_bytes=self._inline_bytes,
            rewrite_seconds=self._rewrite_seconds if operator in self._slot_storages else PATIENCE,
        )


def temporary_files(root: Path) -> list[str]:
    """The names of what writers left below a local root."""
    folder = root / ".tmp"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
