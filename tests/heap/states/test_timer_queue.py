"""The heap's timer queue: its index is exact at any point in time, and what is kept for roll-backs stays small."""

from __future__ import annotations

import random
from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable
from emberstate.heap.states.timer_queue import DROPPED_PER_OPERATION, HeapTimerQueue
from emberstate.keygroups import KeySchema
from emberstate.state.timers import Timer
from tests.heap.conftest import COMPILED


@pytest.fixture(params=[CopyOnWriteStateTable, NestedMapsStateTable], ids=["copy-on-write", "nested"])
def backend(request: pytest.FixtureRequest) -> HeapKeyedStateBackend:
    """An empty backend for int keys."""
    return HeapKeyedStateBackend(KeySchema.from_python(int), max_parallelism=8, table_type=request.param)


def register(backend: HeapKeyedStateBackend, queue: HeapTimerQueue, keys: int, times: range) -> list[Timer]:
    """Register a timer for each key and time; all of them in firing order."""
    for key in range(keys):
        backend.set_current_key(key)
        for time in times:
            queue.register(time, "x")
    return [Timer(time, key, "x") for time in times for key in range(keys)]


def drain(queue: HeapTimerQueue, until: int = 2**62) -> list[Timer]:
    """Poll everything that is due."""
    fired = []
    while (timer := queue.poll(until)) is not None:
        fired.append(timer)
    return fired


def test_deleted_timers_leave_nothing_behind(backend: HeapKeyedStateBackend) -> None:
    """Catches an index that keeps what was deleted (session windows move their timer again and again): whoever
    polls next would have to wade through it.
    """
    queue = backend.get_timer_queue("t")
    backend.set_current_key(1)
    for time in range(5_000):
        queue.register(time, "x")
        if time:
            queue.delete(time - 1, "x")
        assert len(queue._index) == 1
    assert drain(queue) == [Timer(4_999, 1, "x")]


def test_no_operation_does_the_work_of_many(backend: HeapKeyedStateBackend) -> None:
    """Catches deletions that leave their work to whoever comes next: a poll after many of them, or one deletion
    too many, must compare no more timers than any other operation.
    """

    class Name(str):
        """A name that counts how often it is compared."""

        compared = 0

        def __lt__(self, other: str) -> bool:
            Name.compared += 1
            return str.__lt__(self, other)

    queue = backend.get_timer_queue("t")
    queue._rank = Name
    names = 4_000
    most = 0
    backend.set_current_key(1)
    for number in range(names):  # one time and key: what is compared is the rank of the namespace
        Name.compared = 0
        queue.register(7, "x", f"{number * 7919 % names:05d}")
        most = max(most, Name.compared)
    for number in range(names - 1):
        Name.compared = 0
        queue.delete(7, "x", f"{number:05d}")
        most = max(most, Name.compared)
    Name.compared = 0
    assert queue.poll(7) == Timer(7, 1, "x", f"{names - 1:05d}")
    assert max(most, Name.compared) < 100
    assert len(queue) == 0


def test_rolled_back_timers_leave_nothing_behind(backend: HeapKeyedStateBackend) -> None:
    """Catches an index or journal that keeps the timers of every failed attempt."""
    queue = backend.get_timer_queue("t")
    register(backend, queue, 2, range(5))
    with backend.snapshot() as snapshot:
        for attempt in range(20):
            register(backend, queue, 3, range(100 + attempt, 600 + attempt))
            backend.roll_back(snapshot)
            statistics = queue.statistics()
            assert (statistics.timers, statistics.journal) == (10, 0)
            backend.check_invariants()
    assert len(drain(queue)) == 10


def test_rolling_back_again_and_again_beside_another_snapshot(backend: HeapKeyedStateBackend) -> None:
    """Catches a journal that doubles with every roll-back while a newer snapshot is still being written."""
    queue = backend.get_timer_queue("t")
    timers = register(backend, queue, 2, range(5))
    with backend.snapshot() as first:
        register(backend, queue, 2, range(5, 10))
        with backend.snapshot() as second:
            for _ in range(30):
                drain(queue, 3)
                backend.roll_back(first)
                assert drain(queue, 99) == timers
            assert queue.statistics().journal < 10 + 30 * 50
            backend.roll_back(second)
            assert len(queue) == 20
            backend.check_invariants()


def test_firing_and_deleting_under_a_snapshot_can_be_rolled_back(backend: HeapKeyedStateBackend) -> None:
    """Catches timers that are in the set again after a roll-back but not in the index: they would never
    fire.
    """
    queue = backend.get_timer_queue("t")
    timers = register(backend, queue, 4, range(600))
    with backend.snapshot() as snapshot:
        for _ in range(2):
            first = drain(queue, 9)
            assert first == timers[: len(first)]
            for key in range(4):
                backend.set_current_key(key)
                for time in range(10, 600):
                    if (time + key) % 4:
                        assert queue.delete(time, "x")
            backend.check_invariants()
            backend.roll_back(snapshot)
            backend.check_invariants()
            assert len(queue) == len(timers)
    assert drain(queue) == timers


def test_rolling_back_to_and_fro(backend: HeapKeyedStateBackend) -> None:
    """Catches timers of a side branch that are lost, or that fire where they never were."""
    queue = backend.get_timer_queue("t")
    base = register(backend, queue, 2, range(3))
    first = backend.snapshot()
    assert drain(queue, 0) == base[:2]
    backend.set_current_key(0)
    queue.register(7, "branch")
    second = backend.snapshot()
    backend.roll_back(first)
    assert drain(queue) == base
    backend.roll_back(second)
    assert drain(queue) == [*base[2:], Timer(7, 0, "branch")]
    backend.roll_back(first)
    second.release()
    assert drain(queue) == base
    backend.roll_back(first)
    first.release()
    assert drain(queue) == base


def test_nothing_is_written_down_without_a_snapshot(backend: HeapKeyedStateBackend) -> None:
    """Catches timers kept for a roll-back that cannot come, and a journal thrown away all at once."""
    queue = backend.get_timer_queue("t")
    with backend.snapshot():
        register(backend, queue, 1, range(50))
        drain(queue, 40)
        assert queue.statistics().journal == 91
    with backend.snapshot():
        queue.poll(41)
        assert queue.statistics().journal == 92 - DROPPED_PER_OPERATION
    left = 92 - DROPPED_PER_OPERATION
    while left:
        queue.register(left, "y")
        left = max(0, left - DROPPED_PER_OPERATION)
        assert queue.statistics().journal == left
    drain(queue)
    assert queue.statistics().journal == 0


def test_statistics_count_what_happened(backend: HeapKeyedStateBackend) -> None:
    """Catches counters that mislead whoever looks at a queue that does not fire."""
    queue = backend.get_timer_queue("t")
    register(backend, queue, 2, range(5))
    backend.set_current_key(0)
    queue.register(0, "x")
    queue.delete(4, "x")
    drain(queue, 1)
    statistics = queue.statistics()
    assert (statistics.timers, statistics.registered, statistics.deleted, statistics.fired) == (5, 10, 1, 4)
    assert backend.statistics().timers == (statistics,)


def test_random_operations_on_many_timers(backend: HeapKeyedStateBackend) -> None:
    """Catches, with thousands of timers, any mixture that the short model test does not reach."""
    rng = random.Random(20)
    queue = backend.get_timer_queue("t")
    model: set[Timer] = set()
    taken: list[tuple[Any, set[Timer]]] = []
    for step in range(10_000 if COMPILED else 3_000):
        choice = rng.random()
        key = rng.randrange(30)
        backend.set_current_key(key)
        if choice < 0.6:
            timer = Timer(rng.randrange(-500, 500), key, rng.choice("xy"), rng.choice(["", "w"]))
            assert queue.register(timer.time, timer.name, timer.namespace) == (timer not in model)
            model.add(timer)
        elif choice < 0.85 and model:
            mine = queue.timers_of_current_key()
            assert mine == sorted(timer for timer in model if timer.key == key)
            for timer in rng.sample(mine, len(mine) // 2):
                assert queue.delete(timer.time, timer.name, timer.namespace)
                model.discard(timer)
        elif choice < 0.95:
            until = rng.randrange(-500, -300)
            due = sorted(timer for timer in model if timer.time <= until)
            assert drain(queue, until) == due
            model.difference_update(due)
        elif choice < 0.97 and len(taken) < 3:
            taken.append((backend.snapshot(), set(model)))
        elif choice < 0.985 and taken:
            snapshot, model = rng.choice(taken)
            model = set(model)
            backend.roll_back(snapshot)
        elif taken:
            taken.pop(rng.randrange(len(taken)))[0].release()
        if step % 500 == 0:
            backend.check_invariants()
            assert len(queue) == len(model)
    assert drain(queue) == sorted(model)
