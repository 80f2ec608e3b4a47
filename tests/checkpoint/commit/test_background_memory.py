"""Memory that runs out while a delta or a base is made: the state is what it was, the next commit is fine."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.codec import pickle_codec
from emberstate.errors import StorageError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from tests.checkpoint.stored import SharedMemory, UnsyncedFileSystem
from tests.patience import PATIENCE

ROOT = Path(__file__).parents[3]
SCHEMA = KeySchema.from_python(int)
SPEC = OperatorSpec(name="op", key_schema=SCHEMA, max_parallelism=4)
MEGABYTE = 1 << 20
BLOCK = 1 << 16


class Heavy:
    """A value whose encoding takes memory that is not always there."""

    #: How many more encodings there is memory for; None: any number.
    left: int | None = None

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        if Heavy.left is not None:
            Heavy.left -= 1
            if Heavy.left < 0:
                raise MemoryError
        return Heavy, (self.number,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Heavy) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


HEAVY = ValueStateDescriptor("heavy", pickle_codec(Heavy))
HEAVIES = ListStateDescriptor("heavies", pickle_codec(Heavy))
BY_NAME = MapStateDescriptor("by name", str, pickle_codec(Heavy))
STATES = (HEAVY, HEAVIES, BY_NAME)


def make_heavy(groups: KeyGroupRange) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=4, key_group_range=groups)
    for state in STATES:
        backend.get_partitioned_state(state)
    return backend


def run_heavy(backend: Any, batch: int) -> None:
    """Write, append, put, and change in place what was read."""
    value, many, by_name = map(backend.get_partitioned_state, STATES)
    for key in range(6):
        backend.set_current_key(key)
        if batch % 2 and value.value() is not None:
            value.value().number = 100 * batch + key
        else:
            value.update(Heavy(100 * batch + key))
        many.add(Heavy(batch))
        by_name[f"n{batch % 4}"] = Heavy(batch)


def heavy_content(backend: Any) -> list[Any]:
    backend.check_invariants()
    if not backend.number_of_entries():
        return expected_heavy(0)
    value, many, by_name = map(backend.get_partitioned_state, STATES)
    found = []
    for key in range(6):
        backend.set_current_key(key)
        named = {name: heavy.number for name, heavy in by_name.items()}
        found.append((value.value().number, [heavy.number for heavy in many.get()], named))
    return found


def expected_heavy(batches: int) -> list[Any]:
    if not batches:
        return []
    named = {f"n{batch % 4}": batch for batch in range(batches)}
    return [(100 * (batches - 1) + key, list(range(batches)), named) for key in range(6)]


def restored(storage: Storage, make: Any) -> HeapKeyedStateBackend:
    """The state of the newest checkpoint."""
    manifest = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
    backend: HeapKeyedStateBackend = make(KeyGroupRange(0, 3))
    files = manifest.operators[0].slots[0].files
    restore([FileSlice(open_state_file(storage, file), file.key_groups, file.decisions) for file in files], backend)
    return backend


@pytest.mark.reliability(17)
@pytest.mark.parametrize("room", [0, 1, 2, 5, 7, 11, 13, 17, 18, 25, 40])
def test_no_memory_to_encode_a_value(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: values that are half sealed when memory runs out; a delta without what was listed before."""
    storage = SharedMemory()
    policy = ChainPolicy(most_files=3, rewrite_at=3, small_bytes=10)  # so that bases run out of memory as well
    coordinator = CheckpointCoordinator.open(storage, "job", [SPEC], policy=policy)
    slot = SlotCheckpoint(make_heavy, storage, policy=policy)
    failures = 0
    for batch in range(8):
        begun = coordinator.begin(batch, query="q", source=str(batch))
        assert isinstance(begun, Transaction)
        for attempt in range(3):
            monkeypatch.setattr(Heavy, "left", room if attempt == 0 and batch else None)
            try:
                slot.start(begun.tasks[0])
                run_heavy(slot.backend, batch)
                coordinator.commit(begun, [slot.prepare()])
                break
            except (MemoryError, StorageError) as error:  # of the base in the background
                monkeypatch.setattr(Heavy, "left", None)
                failures += 1
                assert isinstance(error, MemoryError) or "in the background" in str(error)
                slot.roll_back()
                slot.start(begun.tasks[0])
                assert heavy_content(slot.backend) == expected_heavy(batch)
        monkeypatch.setattr(Heavy, "left", None)
        assert heavy_content(slot.backend) == expected_heavy(batch + 1)
        assert heavy_content(restored(storage, make_heavy)) == expected_heavy(batch + 1)
    assert failures >= 1
    slot.close()


# -- a real limit, in a process of its own --------------------------------------------------------------------

KEYS = 100
RAN_OUT = 3
TEXT = ValueStateDescriptor("text", str)
PARTS = ListStateDescriptor("parts", list[int])


def make_large(groups: KeyGroupRange) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=4, key_group_range=groups)
    backend.get_partitioned_state(TEXT)
    backend.get_partitioned_state(PARTS)
    return backend


def run_large(backend: Any, batch: int) -> None:
    """Change every key: a delta of megabytes, every other time of many."""
    text, parts = backend.get_partitioned_state(TEXT), backend.get_partitioned_state(PARTS)
    for key in range(KEYS):
        backend.set_current_key(key)
        text.update(f"{batch}-{key}-" * (20_000 if batch % 2 else 500))
        parts.add([batch, key])


def large_content(backend: Any) -> dict[int, Any]:
    backend.check_invariants()
    text, parts = backend.get_partitioned_state(TEXT), backend.get_partitioned_state(PARTS)
    found = {}
    for key in range(KEYS):
        backend.set_current_key(key)
        found[key] = ((text.value() or "")[:12], list(parts.get()))
    return found


def expected_large(batches: int) -> dict[int, Any]:
    last = batches - 1
    return {key: ((f"{last}-{key}-" * 12)[:12], [[batch, key] for batch in range(batches)]) for key in range(KEYS)}


def leave(room: int) -> list[bytes]:
    """Take all the memory that there is but some megabytes; it is free again when the result is cleared."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + room * MEGABYTE
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.getrlimit(resource.RLIMIT_AS)[1]))
    ballast: list[bytes] = []
    try:
        while True:
            ballast.append(bytes(BLOCK))
    except MemoryError:
        del ballast[len(ballast) - room * MEGABYTE // BLOCK :]
    return ballast


def work(root: str, room: int) -> None:
    """Run a small batch as it is, and a large one with so many megabytes to spare; if they are not enough, again
    without that limit. Exits with 3 in that case."""
    storage = LocalStorage(root, file_system=UnsyncedFileSystem())
    coordinator = CheckpointCoordinator.open(storage, "job", [SPEC])
    slot = SlotCheckpoint(make_large, storage)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    last = coordinator.latest.batch
    ran_out = False
    for batch in range(0 if last is None else last.id + 1, 1000):
        begun = coordinator.begin(batch, query="q", source=str(batch))
        assert isinstance(begun, Transaction)
        slot.start(begun.tasks[0])
        run_large(slot.backend, batch)
        ballast = leave(room) if batch % 2 else []
        try:
            acknowledgement = slot.prepare()
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        except MemoryError:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            ballast.clear()
            ran_out = True
            slot.roll_back()
            assert large_content(slot.backend) == expected_large(batch)
            slot.start(begun.tasks[0])
            run_large(slot.backend, batch)
            acknowledgement = slot.prepare()
        coordinator.commit(begun, [acknowledgement])
        assert large_content(slot.backend) == expected_large(batch + 1)
        ballast.clear()
        if batch % 2:
            slot.close()
            sys.exit(RAN_OUT if ran_out else 0)


def main(root: str) -> None:
    """Fork a process for each amount of memory; whatever becomes of it, what was committed is there."""
    codes = []
    for room in (100, 6, 1):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(root, room)
            except SystemExit as ended:
                code = int(ended.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        # Libraries in C may die where Python raises: msgspec's encoder does.
        assert codes[-1] in (0, RAN_OUT, -signal.SIGSEGV, -signal.SIGABRT), f"with {room} MB: exit code {codes[-1]}"
        storage = LocalStorage(root, file_system=UnsyncedFileSystem())
        manifest = read_checkpoint(storage, checkpoint_numbers(storage)[-1])
        assert manifest.batch is not None
        assert manifest.batch.id % 2 == (codes[-1] >= 0)
        assert large_content(restored(storage, make_large)) == expected_large(manifest.batch.id + 1), f"with {room} MB"
    assert codes[0] == 0 and any(codes), f"the limit was not felt: {codes}"
    sys.stdout.write(f"{codes}\n")


@pytest.mark.reliability(17)
def test_a_limit_of_memory(tmp_path: Path) -> None:
    """Catches: a committed checkpoint that does not outlive a slot which runs out of memory."""
    program = "import sys; from tests.checkpoint.commit.test_background_memory import main; main(sys.argv[1])"
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}  # others keep reserves
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "root")],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=PATIENCE, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
