"""State files between the backends: what one writes restores into the other, both ways, and is the same file."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.checkpoint.files import state_file_world as world
from tests.checkpoint.files.state_file_small import small_files
from tests.checkpoint.files.test_state_file_rows import BAD_ROWS, file_of
from tests.effort import examples
from tests.raising import raising
from tests.rocksdb.conftest import LIMIT

#: All that both backends do alike: a value that is changed in place is the heap's alone.
STEPS = world.STEPS.map(lambda step: ("best", *step[1:3], 1) if step[0] == "change profile" else step)


@contextlib.contextmanager
def rocksdb(groups: KeyGroupRange | None = None, names: tuple[str, ...] = tuple(world.DESCRIPTORS)) -> Iterator[Any]:
    """A RocksDB backend like those of `state_file_world`."""
    with tempfile.TemporaryDirectory() as directory:
        backend = RocksDBKeyedStateBackend(
            KeySchema.from_python(str),
            directory,
            max_parallelism=world.MAX_PARALLELISM,
            key_group_range=groups,
            memory_limit=LIMIT,
        )
        backend.ttl_clock.processing_time = 1_000_000
        for name in names:
            window = name == "window"
            backend.get_partitioned_state(
                world.DESCRIPTORS[name], (0, 1) if window else "", namespace_type=tuple[int, int] if window else str
            )
        for name in world.QUEUES:
            backend.get_timer_queue(name)
        yield backend
        backend.close()


def content_of(backend: Any) -> dict[Any, Any]:
    """{(state, key, namespace): content} of either backend, by a snapshot."""
    found = {}
    with backend.snapshot() as snapshot:
        for group in backend.context.key_group_range:
            for name in snapshot.states:
                found.update({(name, key, ns): content for key, ns, content in snapshot.entries(name, group)})
            for name in snapshot.timer_queues:
                found.update({(name, key, "timers"): content for key, _, content in snapshot.timers(name, group)})
    return found


def timers_in_order(backend: Any) -> list[Any]:
    """All timers, fired."""
    fired = []
    for name in world.QUEUES:
        queue = backend.get_timer_queue(name)
        while (timer := queue.poll(2**62)) is not None:
            fired.append((name, timer))
    return fired


def base_of(backend: Any, **options: Any) -> bytes:
    """A base of all there is."""
    with backend.snapshot() as snapshot:
        return b"".join(BaseWriter(backend, snapshot, **options))


def opened(*files: bytes) -> list[StateFileReader]:
    """Readers."""
    return [StateFileReader.of_bytes(data, name=f"file {i}") for i, data in enumerate(files)]


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(STEPS, max_size=60), st.integers(1, 5))
def test_a_base_is_the_same_file_and_restores_into_either(steps: list[Any], batch_rows: int) -> None:
    """Catches: a kind, namespace, stamp or timer that one backend writes or reads differently from the other."""
    heap = world.make_backend()
    with rocksdb() as backend, rocksdb() as restored:
        for step in steps:
            world.do(heap, step)
            world.do(backend, step)
        data = base_of(backend, batch_rows=batch_rows)
        assert data == base_of(heap, batch_rows=batch_rows)
        restore(opened(data), restored)
        restored.check_invariants()
        assert content_of(restored) == content_of(backend) == content_of(heap)
        into_heap = world.make_backend()
        restore(opened(data), into_heap)
        assert content_of(into_heap) == content_of(heap)
        assert timers_in_order(restored) == timers_in_order(backend) == timers_in_order(heap)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.lists(STEPS, max_size=25), min_size=2, max_size=5), st.booleans(), st.data())
def test_a_base_and_its_deltas_are_the_live_state(transactions: list[list[Any]], merged: bool, data: Any) -> None:
    """Catches: a change missing from a delta, undone by a roll-back and yet written, or read in the wrong order."""
    with rocksdb() as backend, rocksdb() as restored:
        for step in transactions[0]:
            world.do(backend, step)
        base, deltas = base_of(backend), []
        committed = backend.snapshot()
        for steps in transactions[1:]:
            if data.draw(st.booleans(), label="an attempt fails"):
                for step in data.draw(st.lists(STEPS, max_size=10)):
                    world.do(backend, step)
                backend.roll_back(committed)
            for step in steps:
                world.do(backend, step)
            deltas.append(write_delta(backend, committed).data)
            newer = backend.snapshot()
            committed.release()
            committed = newer
        if merged:
            deltas = [merge_deltas(opened(*deltas)).data]
        heap = world.make_backend()
        restore(opened(base, *deltas), heap)
        restore(opened(base, *deltas), restored)
        restored.check_invariants()
        assert content_of(heap) == content_of(restored) == content_of(backend)
        assert timers_in_order(heap) == timers_in_order(restored)
        committed.release()


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_a_heap_base_restores_at_any_parallelism(steps: list[Any]) -> None:
    """Catches: a key group read from, or given to, the wrong slot."""
    heap = world.make_backend()
    for step in steps:
        world.do(heap, step)
    data = base_of(heap)
    for parallelism in (2, 7):
        found: dict[Any, Any] = {}
        for slot in range(parallelism):
            with rocksdb(range_for_slot(world.MAX_PARALLELISM, parallelism, slot)) as backend:
                restore(opened(data), backend)
                backend.check_invariants()
                found.update(content_of(backend))
        assert found == content_of(heap)


def test_a_base_is_written_while_the_owner_goes_on() -> None:
    """Catches: a snapshot whose scans see what is written later, as rocksdict's own do."""
    with rocksdb() as backend:
        total = world.handle(backend, "total")
        seen = world.handle(backend, "seen")
        for number in range(3000):
            backend.set_current_key(f"k{number}")
            total.update(number)
            seen.put("u", number)
        expected = content_of(backend)
        snapshot = backend.snapshot()
        files: list[bytes] = []
        started, go_on = threading.Event(), threading.Event()

        def write() -> None:
            writer = BaseWriter(backend, snapshot, batch_rows=50)
            parts = [next(writer), next(writer)]
            started.set()
            go_on.wait()
            files.append(b"".join([*parts, *writer]))

        thread = threading.Thread(target=write)
        thread.start()
        started.wait()
        for number in range(0, 3000, 2):
            backend.set_current_key(f"k{number}")
            total.update(-1)
            seen.clear()
            backend.set_current_key(f"new{number}")
            total.update(-2)
        go_on.set()
        thread.join()
        snapshot.release()
        heap = world.make_backend()
        restore(opened(*files), heap)
        assert content_of(heap) == expected


def test_only_a_new_backend_is_restored_into() -> None:
    """Catches: restored state that mixes with what was there, or that a roll-back would remove."""
    data = base_of(world.make_backend())
    with rocksdb() as backend:
        backend.set_current_key("ann")
        world.handle(backend, "total").update(1)
        with raising(RestoreRefusedError, found="state"):
            restore(opened(data), backend)
        assert world.handle(backend, "total").value() == 1
    with rocksdb() as backend:
        backend.snapshot().release()
        with raising(RestoreRefusedError, found="a snapshot"):
            restore(opened(data), backend)


def test_an_undeclared_state_is_kept() -> None:
    """Catches: a kept state that loses its bytes, or of which somebody gets a handle."""
    heap = world.make_backend()
    heap.set_current_key("ann")
    world.handle(heap, "profile").update(world.Profile("ann", ["x"], 1.5))
    world.handle(heap, "notes", "w").put((1, "a"), {"b": b"c"})
    heap.get_timer_queue("event").register(5, "t", "w")
    data = base_of(heap)
    kept = tuple(name for name in world.DESCRIPTORS if name != "notes")
    with rocksdb(names=kept) as backend:
        restore(opened(data), backend, RestoreChoices(keep_states=["notes"]))
        backend.check_invariants()
        with raising(StateDeclarationError, state="notes"):
            backend.get_partitioned_state(MapStateDescriptor("notes", tuple[int, str], dict[str, bytes]))
        backend.set_current_key("ann")
        assert world.handle(backend, "profile").value() == world.Profile("ann", ["x"], 1.5)
        again = world.make_backend()
        restore(opened(base_of(backend)), again)
        assert content_of(again) == content_of(heap)


@dataclasses.dataclass
class LongerProfile:
    """`Profile` with a field more."""

    name: str
    tags: list[str]
    score: float | None = None
    level: int = 3


def test_a_field_more_is_there_with_its_default() -> None:
    """Catches: a value that is stored in the bytes of its old type, where the declared one has others."""
    heap = world.make_backend()
    heap.set_current_key("ann")
    world.handle(heap, "profile").update(world.Profile("ann", ["x"]))
    data = base_of(heap)
    with rocksdb(names=tuple(name for name in world.DESCRIPTORS if name != "profile")) as backend:
        profile = backend.get_partitioned_state(ValueStateDescriptor("profile", LongerProfile))
        assert restore(opened(data), backend).verdict.kind == "migrates"
        backend.set_current_key("ann")
        assert profile.value() == LongerProfile("ann", ["x"])
        backend.check_invariants()


@contextlib.contextmanager
def small() -> Iterator[Any]:
    """A RocksDB backend like `small_backend`."""
    with tempfile.TemporaryDirectory() as directory:
        schema = KeySchema.from_python(str)
        backend = RocksDBKeyedStateBackend(schema, directory, max_parallelism=2, memory_limit=LIMIT)
        backend.get_partitioned_state(ListStateDescriptor("list", int))
        backend.get_partitioned_state(MapStateDescriptor("map", str, int))
        backend.get_partitioned_state(ValueStateDescriptor("value", str))
        backend.get_timer_queue("timers")
        yield backend
        backend.close()


@pytest.mark.reliability(27)
@pytest.mark.parametrize("name", BAD_ROWS)
def test_rows_that_no_writer_writes(name: str) -> None:
    """Catches: nonsense taken for state, or told without saying where it is; as for the heap."""
    kind, rows, complaint = BAD_ROWS[name]
    with small() as backend:
        with raising(CorruptionError, r"row \d+", path="evil") as caught:
            restore([StateFileReader.of_bytes(file_of(kind, rows), name="evil")], backend)
        assert complaint in str(caught.value)


@pytest.mark.reliability(27)
def test_the_same_base_twice_is_refused() -> None:
    """Catches: two bases of one key group that are merged silently."""
    base, delta, expected = small_files()
    with small() as backend:
        restore(opened(base, delta), backend)
        tables = [*backend.registered_kv_states.values(), backend.get_timer_queue("timers").table]
        assert [sorted(table, key=repr) for table in tables] == expected
    with small() as backend, raising(CorruptionError, "exists already", state="list", key_group=0):
        restore(opened(base, base), backend)
