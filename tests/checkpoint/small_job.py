"""A job of one operator, with a coordinator and slots in one process, and a plain model of its state.

Every commit and opening notes what the state is then, so that any checkpoint can be compared with it later.
"""

from __future__ import annotations

from typing import Any

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.layout import CONDEMNED, SAVEPOINTS
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from emberstate.storage.interface import Storage
from emberstate.storage.memory import MemoryStorage
from tests.patience import PATIENCE

KEYS = KeySchema.from_python(str)
GROUPS = 8
TOTAL = ValueStateDescriptor("total", int)
SEEN = MapStateDescriptor("seen", str, int)
POLICY = ChainPolicy(most_files=6, rewrite_at=3, small_bytes=4096)

Model = dict[str, tuple[int, dict[str, int]]]


def make_backend(groups: KeyGroupRange | None = None) -> HeapKeyedStateBackend:
    """An empty backend with the job's states."""
    backend = HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS, key_group_range=groups)
    backend.get_partitioned_state(TOTAL)
    backend.get_partitioned_state(SEEN)
    return backend


class SharedMemory(MemoryStorage):
    """Memory that slots reach too, so that they write files and rewrite chains."""

    shared = True


class SmallJob:
    """Counts words: key → how often, and in which batch last."""

    def __init__(
        self,
        storage: Storage,
        *,
        inline_bytes: int = 300,
        retained: int = 2,
        parallelism: int = 2,
        slot_storage: Storage | None = None,
    ) -> None:
        self.storage = storage
        self.slot_storage = storage if slot_storage is None else slot_storage
        self.inline_bytes = inline_bytes
        self.retained = retained
        self.parallelism = parallelism
        self.models: dict[str, Model] = {}  # by the id of the manifest
        self.model: Model = {}
        self.batch = -1
        self.query = "q"
        self.coordinator: CheckpointCoordinator | None = None
        self.slots: list[SlotCheckpoint] = []

    def open(self, **options: Any) -> CheckpointCoordinator:
        """Start, or start again, from the newest checkpoint or what the options say."""
        self.close()
        spec = OperatorSpec(name="words", key_schema=KEYS, parallelism=self.parallelism, max_parallelism=GROUPS)
        self.coordinator = CheckpointCoordinator.open(
            self.storage, "job", [spec], policy=POLICY, retained=self.retained, **options
        )
        self.slots = [
            SlotCheckpoint(make_backend, self.slot_storage, policy=POLICY, inline_bytes=self.inline_bytes)
            for _ in range(self.parallelism)
        ]
        latest = self.coordinator.latest
        if latest.parent is None and not options.get("savepoint"):
            self.model, self.batch = {}, -1
        elif latest.parent is not None:
            self.model = self.models[latest.parent.id]
            self.batch = -1 if latest.batch is None else latest.batch.id
        self.models[latest.id] = self.model
        return self.coordinator

    def begin(self) -> Transaction:
        """Begin the next batch."""
        assert self.coordinator is not None
        transaction = self.coordinator.begin(self.batch + 1, query=self.query, source=f"up to {self.batch + 1}")
        assert not isinstance(transaction, Redelivery)
        return transaction

    def run(self, *words: str, settle: bool = True) -> Manifest:
        """Run a batch and commit it; `settle` waits for rewrites in the background."""
        assert self.coordinator is not None
        transaction = self.begin()
        acknowledgements = []
        for task, slot in zip(transaction.tasks, self.slots, strict=True):
            slot.start(task)
            count_words(slot, words, self.batch + 1)
            if settle:
                wait_for_rewrite(slot)
            rows = [("out", len(words), " ".join(words).encode() * 20)]
            acknowledgements.append(slot.prepare(rows))
        manifest = self.coordinator.commit(transaction, acknowledgements)
        self.batch += 1
        model = dict(self.model)
        for word in words:
            count, seen = model.get(word, (0, {}))
            model[word] = (count + 1, {**seen, str(self.batch): 1})
        self.models[manifest.id] = self.model = model
        return manifest

    def close(self) -> None:
        """End the slots, as a dead driver would."""
        for slot in self.slots:
            slot.close()
        self.slots = []

    def check(self, storage: Storage, manifest: Manifest) -> None:
        """A checkpoint is whole, and holds what it held when it was made."""
        found = verify(storage, manifest)
        assert not found.problems, (manifest.describe(), found.problems)
        assert restored(storage, manifest) == self.models[manifest.id], manifest.describe()

    def check_all(self, storage: Storage) -> list[int]:
        """The same for every checkpoint that is there and not about to be collected."""
        numbers = checkpoint_numbers(storage)
        condemned = {int(path.split("/")[1].split("-")[0]) for path in storage.list(CONDEMNED)}
        for number in numbers:
            if number not in condemned:
                self.check(storage, read_checkpoint(storage, number))
        return numbers


def wait_for_rewrite(slot: SlotCheckpoint) -> None:
    """Until nothing runs in a slot's background."""
    assert slot._writer is None or slot._writer.wait(PATIENCE), "it hangs"


def settle(job: SmallJob) -> None:
    """The same for all slots."""
    for slot in job.slots:
        wait_for_rewrite(slot)


def count_words(slot: SlotCheckpoint, words: tuple[str, ...], batch: int) -> None:
    """What the job does with its input."""
    backend = slot.backend
    total, seen = backend.get_partitioned_state(TOTAL), backend.get_partitioned_state(SEEN)
    for word in words:
        if KEYS.key_group(word, GROUPS) in backend.context.key_group_range:
            backend.set_current_key(word)
            total.update((total.value() or 0) + 1)
            seen.put(str(batch), 1)


def restored(storage: Storage, manifest: Manifest) -> Model:
    """The state of a checkpoint, through the ordinary restore of all its slots."""
    model: Model = {}
    for operator in manifest.operators:
        for slot in operator.slots:
            backend = make_backend(slot.key_groups)
            parts = [
                FileSlice(open_state_file(storage, file), file.key_groups, file.decisions) for file in slot.files
            ]
            restore(parts, backend)
            total, seen = backend.get_partitioned_state(TOTAL), backend.get_partitioned_state(SEEN)
            for key in list(backend.get_keys("total")):
                backend.set_current_key(key)
                model[key] = (total.value() or 0, dict(seen))
            backend.close()
    return model


def unreferenced(storage: Storage) -> list[str]:
    """Files that nothing accounts for: not the checkpoints, savepoints, newest claim, pins and live intents."""
    manifests = [read_checkpoint(storage, number) for number in checkpoint_numbers(storage)]
    known = {ref.path for manifest in manifests for ref in manifest.file_refs()}
    known |= {f"checkpoints/{manifest.number:012}/manifest" for manifest in manifests}
    origins = tuple(f"-{manifest.origin or 'start'}" for manifest in manifests)
    claims = storage.list("claims")
    return [
        path
        for path in storage.list()
        if path not in known
        and not path.startswith((SAVEPOINTS + "/", "pins/"))
        and path not in claims[-1:]
        and not (path.startswith("intents/") and path.endswith(origins))
    ]
