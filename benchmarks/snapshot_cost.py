"""The synchronous part of a snapshot at any size; what a cycle of snapshot, touch, list, release costs per touch."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from benchmarks.measure import SEED, Target, print_table, save, timed
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.value_kind import IMMUTABLE
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

SIZES = (10_000, 1_000_000, 5_000_000)
SNAPSHOTS = 200
TOUCHED = 10_000
CYCLES = 9
NAMESPACE = "ns"


def main() -> None:
    """Run, print, save."""
    rows: list[tuple[Any, ...]] = []
    medians: dict[str, float] = {}
    cycle_ns: dict[int, float] = {}
    dict_copy_ms = 0.0
    for size in SIZES:
        states = CopyOnWriteStateMap(IMMUTABLE)
        for key in range(size):
            states.put(key, NAMESPACE, key)
        median, worst = _snapshots(lambda states=states: states.snapshot())
        medians[f"{size:,} entries"] = median
        rows.append((f"{size:,} entries in one map", median, worst))
        if size <= 1_000_000:
            cycle_ns[size] = _cycles(states, size)
        if size == 1_000_000:
            copied = dict.fromkeys(range(size), 1)
            dict_copy_ms = min(timed(copied.copy) for _ in range(5)) * 1e3
        del states
    backend = _backend()
    median, worst = _snapshots(backend.snapshot)
    medians["backend"] = median
    rows.append(("backend: 128 key groups, 3 states, 30,000 entries", median, worst))
    print_table("Taking a snapshot (µs)", ("what", "median", "worst of 200"), rows)
    print(f"  (dict.copy() of 1,000,000 entries: {dict_copy_ms:.3g} ms)")
    small, large = cycle_ns[10_000], cycle_ns[1_000_000]
    print_table(
        f"Snapshot, touch {TOUCHED:,}, list the changes, release (ns per touch)",
        ("entries", "ns per touch", "ratio"),
        [("10,000", small, 1.0), ("1,000,000", large, large / small)],
    )
    save(
        "snapshot-cost",
        SNAPSHOTS,
        {"median_us": medians, "cycle_ns_per_touch": cycle_ns, "dict_copy_ms_at_1m": dict_copy_ms},
        [
            Target("slowest median snapshot", max(medians.values()), 50.0, "µs"),
            Target("cost per touch at 1M entries against 10k", large / small, 2.0),
        ],
    )


def _snapshots(take: Any) -> tuple[float, float]:
    """Median and worst time of taking a snapshot, in µs."""
    times = []
    for _ in range(SNAPSHOTS):
        start = time.perf_counter()
        snapshot = take()
        times.append((time.perf_counter() - start) * 1e6)
        snapshot.release()
    return statistics.median(times), max(times)


def _cycles(states: CopyOnWriteStateMap, size: int) -> float:
    """Nanoseconds per touch over whole cycles."""
    random_source = random.Random(SEED)
    times = []
    for number in range(CYCLES):
        keys = random_source.sample(range(size), min(TOUCHED, size))

        def cycle(keys: list[int] = keys, number: int = number) -> None:
            put = states.put
            with states.snapshot() as before:
                for key in keys:
                    put(key, NAMESPACE, -number - 1)
                assert len(states.changes(before.point)) == len(keys)

        times.append(timed(cycle) / len(keys) * 1e9)
    return statistics.median(times)


def _backend() -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(int))
    value = backend.get_partitioned_state(ValueStateDescriptor("value", int))
    elements = backend.get_partitioned_state(ListStateDescriptor("list", int))
    pairs = backend.get_partitioned_state(MapStateDescriptor("map", int, int))
    for key in range(10_000):
        backend.set_current_key(key)
        value.update(key)
        elements.add(key)
        pairs[key] = key
    return backend


if __name__ == "__main__":
    main()
