"""Restoring parts of files: the same file for several ranges, each with deltas of its own, at any parallelism."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.manifest.decisions import FileDecisions
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.errors import CorruptionError, RestoreRefusedError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.checkpoint.files.state_file_world import MAX_PARALLELISM, STEPS, content_of, do, make_backend
from tests.effort import examples
from tests.raising import raising


def base_of(backend: HeapKeyedStateBackend) -> StateFileReader:
    with backend.snapshot() as snapshot:
        return StateFileReader.of_bytes(b"".join(BaseWriter(backend, snapshot)), name="base")


def delta_of(backend: HeapKeyedStateBackend, change: Callable[[], None]) -> StateFileReader:
    with backend.snapshot() as snapshot:
        change()
        return StateFileReader.of_bytes(write_delta(backend, snapshot).data, name="delta")


def changed(backend: HeapKeyedStateBackend, steps: list[Any]) -> StateFileReader:
    def change() -> None:
        for step in steps:
            do(backend, step)

    return delta_of(backend, change)


def halves() -> tuple[KeyGroupRange, KeyGroupRange]:
    return range_for_slot(MAX_PARALLELISM, 2, 0), range_for_slot(MAX_PARALLELISM, 2, 1)


@pytest.mark.reliability(21)
@settings(max_examples=examples(60))
@given(*[st.lists(STEPS, max_size=30)] * 3)
def test_one_file_for_two_ranges_with_deltas_of_their_own(first: Any, second: Any, third: Any) -> None:
    """Catches: 1 → 2 → 1 slots, where the base is applied twice, over the other half's deltas, or not at all for
    one half."""
    third = [step for step in third if step[0] not in ("time passes", "poll")]  # which are not about one key
    whole = make_backend()
    for step in first:
        do(whole, step)
    base = base_of(whole)
    delta = changed(whole, second)
    parts = []
    for groups in halves():
        slot = make_backend(groups, now=whole.ttl_clock.processing_time or 0)
        restore([base, delta], slot)
        parts += [FileSlice(base, groups), FileSlice(delta, groups)]
        parts.append(FileSlice(changed(slot, third), groups))
    for step in third:
        do(whole, step)
    again = make_backend()
    restore(parts, again)
    again.check_invariants()
    assert content_of(again) == content_of(whole)


def test_rows_outside_of_the_part_or_the_backend_are_passed_over() -> None:
    """Catches: what a file has of other ranges leaking in; or a range that the backend does not own."""
    backend = make_backend()
    for i in range(100):
        do(backend, ("total", f"key-{i}", "", i))
    base = base_of(backend)
    delta = changed(backend, [("total", f"key-{i}", "", -1 - i) for i in range(100)])
    low, high = halves()
    restored = make_backend()
    counts = restore([FileSlice(base, low), FileSlice(delta, low)], restored)
    assert content_of(restored) == content_of(backend, low)
    assert counts.rows == 2 * len(content_of(backend, low))
    other = make_backend(high)
    assert restore([FileSlice(base, low)], other).batches == 0
    assert not content_of(other)
    assert restore([FileSlice(base, KeyGroupRange.EMPTY)], make_backend()).rows == 0


def test_only_the_batches_of_a_part_are_read() -> None:
    """Catches: a slot that reads what it then throws away."""
    backend = make_backend()
    for i in range(2000):
        do(backend, ("total", f"key-{i}", "", i * 10**12))
    with backend.snapshot() as snapshot:
        data = b"".join(BaseWriter(backend, snapshot))
    reads: list[int] = []

    def read_range(offset: int, length: int) -> bytes:
        reads.append(length)
        return data[offset : offset + length]

    reader = StateFileReader(read_range, len(data))
    reads.clear()
    counts = restore([FileSlice(reader, KeyGroupRange(3, 4))], make_backend(KeyGroupRange(4, 9)))
    assert counts.batches == len(reads) == 1
    assert sum(reads) < len(data) / 8


def test_key_groups_that_the_file_does_not_cover() -> None:
    """Catches: a manifest that names the wrong file, and state that is missing without a word."""
    low, high = halves()
    file = base_of(make_backend(low))
    with raising(CorruptionError, path="base", expected=(8, 15), found=(0, 7)):
        FileSlice(file, high)


@settings(max_examples=examples(50))
@given(*[st.lists(STEPS, max_size=20)] * 3)
def test_deltas_of_parts_merge(first: Any, second: Any, third: Any) -> None:
    """Catches: a merge that takes rows which the part leaves out."""
    backend = make_backend()
    deltas = [changed(backend, steps) for steps in (first, second, third)]
    low, high = halves()
    parts = [FileSlice(deltas[0], low), FileSlice(deltas[1], high), FileSlice(deltas[2], low)]
    expected, found = make_backend(), make_backend()
    try:
        restore(parts, expected)
    except CorruptionError:  # a part that removes what another one, left out, has put
        return
    restore([StateFileReader.of_bytes(merge_deltas(parts).data)], found)
    assert content_of(found) == content_of(expected)


def test_deltas_with_other_decisions_do_not_merge() -> None:
    """Catches: a rename that is applied to rows of before and after, or to neither."""
    deltas = [changed(make_backend(), []) for _ in range(2)]
    decided = FileDecisions(rename_states={"total": "sum"})
    with raising(RestoreRefusedError, expected={"rename_states": {"total": "sum"}}, found={}):
        merge_deltas([FileSlice.whole(deltas[0], decided), deltas[1]])
    merge_deltas([FileSlice.whole(delta, decided) for delta in deltas])


# -- a long life ----------------------------------------------------------------------------------------------

GROUPS = 128
PARALLELISMS = (1, 2, 3, 7, 128)
_COUNT = ValueStateDescriptor("count", int)
_SEEN = MapStateDescriptor("seen", int, str)
_LOG = ListStateDescriptor("log", int)


def slot_of(groups: KeyGroupRange) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=GROUPS, key_group_range=groups)
    for descriptor in (_COUNT, _SEEN, _LOG):
        backend.get_partitioned_state(descriptor)
    backend.get_timer_queue("event")
    return backend


def batch_of(source: random.Random) -> list[tuple[str, int, int]]:
    return [(f"key-{source.randrange(300)}", source.randrange(7), source.randrange(1000)) for _ in range(150)]


def process(backend: HeapKeyedStateBackend, batch: list[tuple[str, int, int]]) -> None:
    for key, what, number in batch:
        if backend.context.grouper(key) not in backend.context.key_group_range:
            continue
        backend.set_current_key(key)
        count = backend.get_partitioned_state(_COUNT)
        seen, log = backend.get_partitioned_state(_SEEN), backend.get_partitioned_state(_LOG)
        timers = backend.get_timer_queue("event")
        match what:
            case 0:
                count.update((count.value() or 0) + number)
            case 1:
                count.clear()
            case 2:
                seen.put_all({number % 9: "x" * (number % 5), number: "y"})
            case 3:
                for user_key in sorted(seen.keys())[:2]:
                    seen.remove(user_key)
            case 4:
                log.add(number)
            case 5:
                timers.register(number, f"t{number % 3}")
            case _:
                for timer in timers.timers_of_current_key()[:1]:
                    timers.delete(timer.time, timer.name)


def held(backend: HeapKeyedStateBackend) -> list[Any]:
    tables = [state.table for state in backend.registered_states.values()]
    tables.append(backend.get_timer_queue("event").table)
    return [(table.name, key, repr(sorted(content.items()) if isinstance(content, dict) else content))
            for table in tables for key, _, content in table]  # fmt: skip


def cut(parts: list[FileSlice], groups: KeyGroupRange) -> list[FileSlice]:
    """The references of a manifest, for a slot that owns `groups`."""
    cuts = [(part, part.key_groups.intersection(groups)) for part in parts]
    return [FileSlice(part.reader, common, part.decisions) for part, common in cuts if common]


@pytest.mark.long
@pytest.mark.reliability(21)
@pytest.mark.parametrize("seed", range(3))
def test_twenty_rescalings_in_a_row(seed: int) -> None:
    """Catches: an entry or timer lost, doubled or in two slots when the parallelism goes up and down, with bases
    of some slots and deltas of others, and files that are referred to again and again."""
    source = random.Random(seed)
    whole = slot_of(KeyGroupRange(0, GROUPS - 1))
    parts: list[FileSlice] = []
    history = []
    for _ in range(20):
        parallelism = source.choice(PARALLELISMS)
        history.append(parallelism)
        batch = batch_of(source)
        process(whole, batch)
        following: list[FileSlice] = []
        everything: list[Any] = []
        owner: dict[str, int] = {}
        for slot in range(parallelism):
            groups = range_for_slot(GROUPS, parallelism, slot)
            backend = slot_of(groups)
            mine = cut(parts, groups)
            restore(mine, backend)
            delta = delta_of(backend, functools.partial(process, backend, batch))
            if source.random() < 0.2 or len(mine) > 40:
                following.append(FileSlice.whole(base_of(backend)))
            else:
                following += [*mine, FileSlice.whole(delta)]
            entries = held(backend)
            everything += entries
            for _, key, _ in entries:
                assert owner.setdefault(key, slot) == slot, f"{key} in two slots, seed {seed}, {history}"
        assert sorted(everything) == sorted(held(whole)), f"seed {seed}, parallelisms {history}"
        parts = following
    end = slot_of(KeyGroupRange(0, GROUPS - 1))
    restore(parts, end)
    end.check_invariants()
    assert fired_by(end) == fired_by(whole)


def fired_by(backend: HeapKeyedStateBackend) -> list[Any]:
    queue = backend.get_timer_queue("event")
    return list(iter(lambda: queue.poll(10**6), None))
