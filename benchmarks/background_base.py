"""A base written in the background while a writer updates at full speed: how much speed the writer keeps, and
how long its longest operation waits.

One table of texts to ints. Rounds of the same random updates, by turns: with nothing else going on, and while
`BackgroundWriter` writes a base of everything to a local directory. In both a snapshot is live, as it is in
every transaction, so that the difference is the base alone. As in a slot, the collector is off.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import tempfile
import time
from typing import Any

from benchmarks.measure import SEED, Target, print_table, save
from emberstate.checkpoint.commit.background_writer import SWITCH_INTERVAL, BackgroundWriter
from emberstate.checkpoint.manifest.chain import RewriteOrder
from emberstate.checkpoint.manifest.model import SlotChain
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ValueStateDescriptor
from emberstate.storage.local import LocalStorage

ENTRIES = 1_000_000
COUNT = ValueStateDescriptor("count", int)
ORDER = RewriteOrder("benchmark", 1, SlotChain((0, 127), "attempt"))


class Writer:
    """Updates random keys and notes how long each update took."""

    def __init__(self, entries: int) -> None:
        self.backend = HeapKeyedStateBackend(KeySchema.from_python(str))
        self.count = self.backend.get_partitioned_state(COUNT)
        self.keys = [f"user-{i:08d}" for i in range(entries)]
        self.rng = random.Random(SEED)
        for number, key in enumerate(self.keys):
            self.backend.set_current_key(key)
            self.count.update(number)

    def update(self, keys: list[str], waits: list[int]) -> None:
        """One update per key."""
        set_key, count, clock, note = self.backend.set_current_key, self.count, time.perf_counter_ns, waits.append
        before = clock()
        for key in keys:
            set_key(key)
            count.update(count.value() + 1)
            after = clock()
            note(after - before)
            before = after

    def alone(self, updates: int) -> tuple[float, list[int]]:
        """Updates per second with nothing going on beside."""
        waits: list[int] = []
        keys = self.rng.choices(self.keys, k=updates)
        with self.backend.snapshot():
            start = time.perf_counter()
            self.update(keys, waits)
            return updates / (time.perf_counter() - start), waits

    def beside_a_base(self, storage: LocalStorage) -> tuple[float, list[int], float]:
        """Updates per second while a base is written, and the seconds that the base took."""
        waits: list[int] = []
        background = BackgroundWriter(storage)
        chunks = [self.rng.choices(self.keys, k=2_000) for _ in range(200)]
        with self.backend.snapshot():
            start = time.perf_counter()
            background.begin(ORDER, self.backend, self.backend.snapshot(), 1)
            number = 0
            while not background.wait(0):
                self.update(chunks[number % len(chunks)], waits)
                number += 1
            seconds = time.perf_counter() - start
        background.result()
        background.close()
        return len(waits) / seconds, waits, seconds


def percentile(waits: list[int], share: float) -> float:
    """In milliseconds."""
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * share))] / 1e6


def main(entries: int = ENTRIES, rounds: int = 7) -> dict[str, Any]:
    """Measure, print and save."""
    writer = Writer(entries)
    gc.collect()
    gc.freeze()
    gc.disable()
    kept, p999, longest, longest_alone, base_seconds = [], [], [], [], []
    try:
        with tempfile.TemporaryDirectory() as folder:
            storage = LocalStorage(folder)
            for _ in range(rounds):
                speed, waits = writer.alone(300_000)
                longest_alone.append(max(waits) / 1e6)
                beside, waits, seconds = writer.beside_a_base(storage)
                kept.append(beside / speed)
                p999.append(percentile(waits, 0.999))
                longest.append(max(waits) / 1e6)
                base_seconds.append(seconds)
    finally:
        gc.enable()
        gc.unfreeze()
    results: dict[str, Any] = {
        "share of its speed that the writer keeps, median": statistics.median(kept),
        "the same, lowest round": min(kept),
        "p99.9 of an update beside a base, ms": statistics.median(p999),
        "longest update beside a base, ms, median of rounds": statistics.median(longest),
        "longest update beside a base, ms, worst round": max(longest),
        "longest update alone, ms, worst round": max(longest_alone),
        "seconds of a base beside a writer": statistics.median(base_seconds),
        "switch interval, ms": SWITCH_INTERVAL * 1e3,
        "switch interval otherwise, ms": sys.getswitchinterval() * 1e3,
    }
    print_table(f"A base in the background, {entries:,} entries", ("what", "measured"), list(results.items()))
    targets = [
        Target("the writer's time per update beside a base", 1 / statistics.median(kept), 2.0),
        Target("longest update beside a base", max(longest), 10.0, "ms"),
    ]
    save("background-base", entries, results, targets)
    return results


if __name__ == "__main__":
    main()
