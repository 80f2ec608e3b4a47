"""Where the checkpoint tests store checkpoints, and what is found there."""

from __future__ import annotations

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import SAVEPOINTS
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.manifest.open_files import open_state_file, read_ref
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.storage.file_system import FileSystem
from emberstate.storage.interface import Storage
from emberstate.storage.memory import MemoryStorage
from tests.checkpoint.work import Content, Work


class SharedMemory(MemoryStorage):
    """Files in memory that slots of the same process reach: a file system without a disk."""

    shared = True

    def copy(self) -> SharedMemory:
        """The same files in a storage of their own."""
        other = SharedMemory()
        for path in self.list():
            other.write_new(path, self.read(path))
        return other


class UnsyncedFileSystem(FileSystem):
    """The real file system without waiting for the disk: a killed process loses nothing by it."""

    def fsync(self, file: int) -> None:
        pass

    def fsync_directory(self, directory: int) -> None:
        pass


class StorageBackend(StateBackend):
    """State on the heap, checkpoints in a given storage; default: in memory."""

    def __init__(self, storage: Storage | None = None, slot_storage: Storage | None = None) -> None:
        self.storage = SharedMemory() if storage is None else storage
        self.slot_storage = self.storage if slot_storage is None else slot_storage

    def open_storage(self) -> Storage:
        return self.storage

    def open_slot_storage(self) -> Storage:
        return self.slot_storage

    def scratch(self) -> StorageBackend:
        return StorageBackend()

    def discard(self) -> None:
        self.storage.delete_all(self.storage.list())


def add_part(found: Content, part: Content) -> None:
    """Add what one slot holds to what others hold."""
    assert not part.keys() & found.keys(), "two slots hold a key"
    found |= part


def restored_backend(storage: Storage, operator: Operator, slot: int, work: Work) -> HeapKeyedStateBackend:
    """A slot's state as a checkpoint has it."""
    chain = operator.slots[slot]
    backend = HeapKeyedStateBackend(work.keys, max_parallelism=work.groups, key_group_range=chain.key_groups)
    work.declare(backend)
    backend.ttl_clock.processing_time = 0
    parts = [FileSlice(open_state_file(storage, file), file.key_groups, file.decisions) for file in chain.files]
    restore(parts, backend)
    backend.check_invariants()
    return backend


def read_content(storage: Storage, manifest: Manifest, *works: Work) -> Content:
    """The whole state of a checkpoint, at its time. Takes nothing over."""
    found: Content = {}
    for operator, work in zip(manifest.operators, works, strict=True):
        for slot in range(operator.parallelism):
            backend = restored_backend(storage, operator, slot, work)
            backend.ttl_clock.processing_time = 0 if manifest.batch is None else manifest.batch.processing_time
            add_part(found, work.content(backend))
            backend.close()
    return found


def read_output(storage: Storage, manifest: Manifest) -> list[str]:
    """The lines of a checkpoint's outputs, sorted."""
    lines: list[str] = []
    for output in manifest.outputs:
        content = read_ref(storage, output.place).decode()
        lines += content.splitlines()
        assert output.rows == len(content.splitlines())
    return sorted(lines)


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
