"""State to files and back: bases, deltas, chains of them, merged deltas, at any parallelism."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import NestedMapsStateTable
from emberstate.keygroups import KeyGroupRange, range_for_slot
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from tests.checkpoint.files.state_file_world import MAX_PARALLELISM, STEPS, content_of, do, handle, make_backend
from tests.effort import examples


def base_of(backend: HeapKeyedStateBackend, snapshot: KeyedStateSnapshot, **options: Any) -> bytes:
    return b"".join(BaseWriter(backend, snapshot, **options))


def opened(*files: bytes) -> list[StateFileReader]:
    return [StateFileReader.of_bytes(data, name=f"file {i}") for i, data in enumerate(files)]


def slots(parallelism: int) -> list[KeyGroupRange]:
    return [range_for_slot(MAX_PARALLELISM, parallelism, slot) for slot in range(parallelism)]


def timers_in_order(backend: HeapKeyedStateBackend) -> list[Any]:
    fired = []
    for name in ("event", "processing"):
        queue = backend.get_timer_queue(name)
        while (timer := queue.poll(2**62)) is not None:
            fired.append((name, timer))
    return fired


@pytest.mark.reliability(20)
@pytest.mark.reliability(21)
@given(st.lists(STEPS, max_size=60), st.integers(1, 5))
def test_a_base_restores_at_any_parallelism(steps: list[Any], batch_rows: int) -> None:
    """Catches: a kind, namespace, stamp or timer lost; a key group read from or given to the wrong slot;
    entries cut at a batch's end."""
    backend = make_backend()
    for step in steps:
        do(backend, step)
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot, batch_rows=batch_rows)
    expected = content_of(backend)
    for parallelism in (1, 2, 3, 7):
        found: dict[Any, Any] = {}
        for groups in slots(parallelism):
            slot = make_backend(groups)
            restore(opened(data), slot)
            slot.check_invariants()
            found.update(content_of(slot))
            assert all(group in groups for group, _ in content_of(slot).values())
        assert found == expected
    whole = make_backend()
    restore(opened(data), whole)
    assert timers_in_order(whole) == timers_in_order(backend)


@pytest.mark.reliability(20)
@settings(max_examples=examples(150))
@given(st.lists(st.lists(STEPS, max_size=25), min_size=1, max_size=5), st.booleans(), st.data())
def test_a_base_and_its_deltas_are_the_live_state(transactions: list[list[Any]], merged: bool, data: Any) -> None:
    """Catches: a change missing from a delta, applied twice or in the wrong order; clear-then-put that merges
    with what was there; a merged delta that does something else than the deltas it was made of."""
    backend = make_backend()
    for step in transactions[0]:
        do(backend, step)
    with backend.snapshot() as snapshot:
        files = [base_of(backend, snapshot)]
    for steps in transactions[1:]:
        with backend.snapshot() as snapshot:
            for step in steps:
                do(backend, step)
            files.append(write_delta(backend, snapshot).data)
    if merged and len(files) > 2:
        cut = data.draw(st.integers(2, len(files) - 1), label="first not merged before")
        files = [files[0], merge_deltas(opened(*files[1:cut])).data, merge_deltas(opened(*files[cut:])).data]
    for parallelism in (1, 3):
        found: dict[Any, Any] = {}
        for groups in slots(parallelism):
            slot = make_backend(groups)
            restore(opened(*files), slot)
            slot.check_invariants()
            found.update(content_of(slot))
        assert found == content_of(backend)


@given(st.lists(st.lists(STEPS, max_size=15), min_size=2, max_size=4))
def test_merged_deltas_alone_do_what_they_do_one_by_one(transactions: list[list[Any]]) -> None:
    """Catches: a merge of a merge that forgets it is one; a REMOVED dropped because an earlier delta PUT the
    key."""
    backend = make_backend()
    deltas = []
    for steps in transactions:
        with backend.snapshot() as snapshot:
            for step in steps:
                do(backend, step)
            deltas.append(write_delta(backend, snapshot).data)
    once = merge_deltas(opened(*deltas)).data
    pairwise = deltas[0]
    for delta in deltas[1:]:
        pairwise = merge_deltas(opened(pairwise, delta)).data
    assert once == pairwise
    restored = make_backend()
    restore(opened(once), restored)
    assert content_of(restored) == content_of(backend)


@given(st.lists(STEPS, max_size=40), st.lists(STEPS, max_size=40))
def test_restored_state_goes_on_as_if_never_stopped(before: list[Any], after: list[Any]) -> None:
    """Catches: loaded entries that changes, snapshots or roll-back treat otherwise than written ones."""
    backend = make_backend()
    for step in before:
        do(backend, step)
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = make_backend(now=backend.ttl_clock.processing_time or 0)
    restore(opened(data), restored)
    with restored.snapshot() as snapshot:
        at_restore = content_of(restored)
        for step in after:
            do(backend, step)
            do(restored, step)
        assert content_of(restored) == content_of(backend)
        again = make_backend()
        restore(opened(data, write_delta(restored, snapshot).data), again)
        assert content_of(again) == content_of(backend)
        restored.roll_back(snapshot)
        assert content_of(restored) == at_restore
    restored.check_invariants()


def test_files_of_several_slots_restore_into_others() -> None:
    """Catches: a restore that takes only the file of its own former slot when the parallelism changes."""
    steps: list[Any] = [("total", f"key-{i}", "", i) for i in range(200)]
    steps += [("timer", f"key-{i}", "", "event", i, "a") for i in range(50)]
    whole = make_backend()
    for step in steps:
        do(whole, step)
    files: list[bytes] = []
    parallelism = 1
    for next_parallelism in (3, 7, 2, 16, 1):
        fresh = []
        for groups in slots(parallelism):
            backend = make_backend(groups)
            if files:
                restore(opened(*files), backend)
            else:
                for step in steps:
                    do(backend, step)
            with backend.snapshot() as snapshot:
                fresh.append(base_of(backend, snapshot))
        files, parallelism = fresh, next_parallelism
    end = make_backend()
    restore(opened(*files), end)
    assert content_of(end) == content_of(whole)


def test_only_needed_ranges_are_read() -> None:
    """Catches: a slot that reads the whole of every base, which makes rescaling cost parallelism times the
    state."""
    backend = make_backend()
    for i in range(2000):
        do(backend, ("total", f"key-{i}", "", i * 10**12))
        do(backend, ("profile", f"key-{i}", "", f"name {i * 7919}", [], None))
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    reads = []

    def read_range(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    groups = range_for_slot(MAX_PARALLELISM, 16, 5)
    slot = make_backend(groups)
    counts = restore([StateFileReader(read_range, len(data))], slot)
    assert content_of(slot) == content_of(backend, groups)
    assert counts.batches == 1
    assert len(reads) == 2 and sum(reads[1:]) < len(data) / 8


@pytest.mark.reliability(20)
def test_a_base_is_written_by_another_thread_while_the_owner_goes_on() -> None:
    """Catches: writes after the snapshot that appear in the base, or a reader that stumbles over a growing
    table."""
    backend = make_backend()
    for i in range(3000):
        do(backend, ("total", f"key-{i}", "", i))
        do(backend, ("seen many", f"key-{i % 100}", "", i % 15))
    expected = content_of(backend)
    snapshot = backend.snapshot()
    written: list[bytes] = []
    thread = threading.Thread(target=lambda: written.append(base_of(backend, snapshot, batch_rows=100)))
    thread.start()
    number = 0
    while thread.is_alive():
        do(backend, ("total", f"key-{number % 9000}", "", -number))
        do(backend, ("seen many", f"key-{number % 100}", "", number % 15))
        do(backend, ("clear", f"key-{number % 70}", "", "seen"))
        number += 1
    thread.join()
    snapshot.release()
    restored = make_backend()
    restore(opened(written[0]), restored)
    assert content_of(restored) == expected
    assert content_of(backend) != expected


def test_nested_maps_restore_too() -> None:
    """Catches: a loader that knows only one of the two tables, or leaves loans behind in the other."""
    backend = make_backend(table_type=NestedMapsStateTable)
    for step in [
        ("total", "ann", "", 1),
        ("profile", "ann", "", "Ann", ["a"], None),
        ("drafts", "bob", "", [[1]]),
        ("notes", "bob", "", 1, "a", {"b": b"c"}),
        ("timer", "bob", "", "event", 3, "a"),
    ]:
        do(backend, step)
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = make_backend(table_type=NestedMapsStateTable)
    restore(opened(data), restored)
    restored.check_invariants()
    assert content_of(restored) == content_of(backend)
    assert not restored.registry.lenders


def test_a_value_handed_out_after_a_restore_is_a_copy() -> None:
    """Catches: loaded values that count as lent, so that changing what a snapshot shares goes unnoticed."""
    backend = make_backend()
    do(backend, ("profile", "ann", "", "Ann", ["a"], None))
    with backend.snapshot() as snapshot:
        data = base_of(backend, snapshot)
    restored = make_backend()
    restore(opened(data), restored)
    assert not restored.registry.lenders
    with restored.snapshot() as before:
        do(restored, ("change profile", "ann", "", "b"))
        assert len(restored.changes(before)) == 1
        restored.roll_back(before)
    restored.set_current_key("ann")
    assert handle(restored, "profile").value().tags == ["a"]


def test_an_empty_backend_has_files_too() -> None:
    """Catches: a file without rows that cannot be written, or read."""
    backend = make_backend()
    with backend.snapshot() as snapshot:
        base, delta = base_of(backend, snapshot), write_delta(backend, snapshot)
    assert delta.counts.rows == delta.counts.batches == 0
    restored = make_backend()
    counts = restore(opened(base, delta.data, merge_deltas(opened(delta.data, delta.data)).data), restored)
    assert (counts.files, counts.batches, counts.rows) == (3, 0, 0)
