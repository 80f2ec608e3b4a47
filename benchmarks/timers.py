"""Timers at a million: single operations, the longest of them, and what a transaction costs that touches a few."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import SEED, Target, print_table, save, timed
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema

SMALL = 10_000
LARGE = 1_000_000
OPERATIONS = 50_000
TOUCHED = 1_000
ROUNDS = 9
HOUR = 3_600_000_000

SCHEMA = KeySchema.from_python(int)


class Queue:
    """A backend with one timer per key, at random times within an hour."""

    def __init__(self, size: int) -> None:
        self.backend = HeapKeyedStateBackend(SCHEMA)
        self.queue = self.backend.get_timer_queue("timers")
        self.chance = random.Random(SEED)
        group = SCHEMA.key_grouper(self.backend.context.max_parallelism)
        self.size = size
        self.groups = [group(key) for key in range(size + OPERATIONS)]
        self.times = [self.chance.randrange(HOUR, 2 * HOUR) for _ in range(size + OPERATIONS)]
        for key in range(size):
            self.register(key)

    def register(self, key: int) -> None:
        """Register the timer of a key."""
        self.backend.context.set_current_key_and_group(key, self.groups[key])
        self.queue.register(self.times[key], "quiet")

    def delete(self, key: int) -> None:
        """Delete it."""
        self.backend.context.set_current_key_and_group(key, self.groups[key])
        self.queue.delete(self.times[key], "quiet")

    def poll(self, _: int) -> None:
        """Fire the next one."""
        self.queue.poll(2 * HOUR)

    def touch(self, number: int) -> None:
        """What a transaction does: register, move and fire some timers."""
        for key in random.Random(SEED + number).sample(range(self.size), TOUCHED // 2):
            self.delete(key)
        for key in range(self.size, self.size + TOUCHED // 4):
            self.register(key)
        for _ in range(TOUCHED // 4):
            self.queue.poll(2 * HOUR)


def main() -> None:
    """Run, print, save."""
    small, large = Queue(SMALL), Queue(LARGE)
    transactions = _transactions(small, large)
    print_table(
        f"A transaction that touches {TOUCHED:,} timers (µs, median of {ROUNDS})",
        ("part", f"of {SMALL:,}", f"of {LARGE:,}", "ratio"),
        [(part, *numbers) for part, numbers in transactions.items()],
    )
    operations, longest = _operations(large)
    index: list[Any] = list(large.queue._index)
    random.Random(SEED).shuffle(index)
    rebuild = min(timed(lambda: sorted(index)) for _ in range(3))
    print_table(
        f"Single operations at {LARGE:,} timers",
        ("operation", "µs", "longest ms"),
        [(name, microseconds, longest[name]) for name, microseconds in operations.items()],
    )
    print(f"  (sorting all timers anew: {rebuild * 1e3:.3g} ms)")
    worst = max(longest.values()) / 1e3
    save(
        "timers",
        ROUNDS,
        {
            "transaction_us": {part: dict(zip(("small", "large", "ratio"), row, strict=True))
                               for part, row in transactions.items()},
            "operation_us": operations,
            "longest_ms": longest,
            "sort_all_ms": rebuild * 1e3,
        },
        [
            Target(f"a transaction, {LARGE:,} timers against {SMALL:,}", transactions["all of it"][2], 2.0),
            Target("longest operation against sorting all timers anew", worst / rebuild, 1 / 20),
        ],
    )


def _transactions(small: Queue, large: Queue) -> dict[str, tuple[float, float, float]]:
    """Median µs at both sizes and their ratio, for each part of a transaction, taking turns."""
    parts: dict[str, Callable[[Queue, int], Any]] = {
        "touch": lambda queue, number: queue.touch(number),
        "list the changes": lambda queue, number: queue.backend.timer_changes(held[queue]),
        "roll back": lambda queue, number: queue.backend.roll_back(held[queue]),
        "snapshot and release": lambda queue, number: queue.backend.snapshot().release(),
    }
    held: dict[Queue, Any] = {}
    times: dict[str, list[tuple[float, float]]] = {part: [] for part in [*parts, "all of it"]}
    for number in range(ROUNDS):
        for queue in (small, large):
            held[queue] = queue.backend.snapshot()
        whole = [0.0, 0.0]
        for part, run in parts.items():
            once = [timed(lambda q=queue: run(q, number)) * 1e6 for queue in (small, large)]  # type: ignore[misc] # noqa: B023
            times[part].append((once[0], once[1]))
            whole = [whole[0] + once[0], whole[1] + once[1]]
        times["all of it"].append((whole[0], whole[1]))
        for queue in (small, large):
            held.pop(queue).release()
    return {
        part: (
            statistics.median(one for one, _ in both),
            statistics.median(other for _, other in both),
            statistics.median(other / one for one, other in both),
        )
        for part, both in times.items()
    }


def _operations(queue: Queue) -> tuple[dict[str, float], dict[str, float]]:
    """µs per operation, and the longest of each in ms, by the thread's own time."""
    keys = random.Random(SEED).sample(range(queue.size), queue.size * 6 // 10)
    with queue.backend.snapshot():
        steps: list[tuple[str, Callable[[int], None], Any]] = [
            ("register", queue.register, range(queue.size, queue.size + OPERATIONS)),
            ("delete, until most are gone", queue.delete, keys),
            ("poll", queue.poll, range(OPERATIONS)),
        ]
        means: dict[str, float] = {}
        longest: dict[str, float] = {}
        for name, operation, arguments in steps:
            means[name], longest[name] = _each(operation, arguments)
    return means, longest


def _each(operation: Callable[[int], None], arguments: Any) -> tuple[float, float]:
    """Mean µs and the longest in ms."""
    gc.collect()
    gc.disable()
    now = time.thread_time
    longest = 0.0
    try:
        began = now()
        for argument in arguments:
            start = now()
            operation(argument)
            longest = max(longest, now() - start)
        return (now() - began) / len(arguments) * 1e6, longest * 1e3
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
