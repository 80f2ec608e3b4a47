"""Large and small maps and lists in state: one touch after a snapshot, memory, and where small maps should end."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Target, print_table, save, timed
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE
from emberstate.heap.states.map_state import HeapMapState
from emberstate.heap.states.map_value import SMALL_LIMIT, MapKind
from emberstate.heap.states.state_table import CopyOnWriteStateTable
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor
from emberstate.state.key_context import KeyContext

LARGE = 1_000_000
TOUCHES = 200
KEYS = 20_000
MAPS = 1_000_000


def main() -> None:
    """Run, print, save."""
    map_touch, list_touch = _large_touches()
    print_table(
        f"One touch right after a snapshot (µs, median of {TOUCHES}, and worst)",
        ("what", "median", "worst"),
        [
            (f"map state of {LARGE:,} user keys: put", *map_touch),
            (f"list state of {LARGE:,}: add", *list_touch),
        ],
    )
    limits = [(limit, *_small_maps(limit)) for limit in (2, 4, 8, 12, 16, 32)]
    print_table(
        f"Small maps: touch one user key of each of {KEYS:,} maps under a snapshot (ns per touch)",
        ("tuple up to", *[f"{size} keys" for size in SMALL_SIZES]),
        limits,
    )
    memory = _memory()
    print_table("Memory (bytes per entry, without key and value)", ("what", "bytes"), list(memory.items()))
    save(
        "collections-in-state",
        TOUCHES,
        {
            "large_map_put_us": map_touch,
            "large_list_add_us": list_touch,
            "small_limit": SMALL_LIMIT,
            "small_maps_ns": {limit[0]: limit[1:] for limit in limits},
            "bytes": memory,
        },
        [Target("one user-key update after a snapshot, 1M user keys, median", map_touch[0], 50.0, "µs")],
    )


def _large_touches() -> tuple[tuple[float, float], tuple[float, float]]:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    pairs = backend.get_partitioned_state(MapStateDescriptor("map", int, int))
    elements = backend.get_partitioned_state(ListStateDescriptor("list", int))
    backend.set_current_key("one")
    for number in range(LARGE):
        pairs[number] = number
    elements.add_all(range(LARGE))

    def touch(change: Callable[[int], None]) -> tuple[float, float]:
        times = []
        for number in range(TOUCHES):
            with backend.snapshot():
                start = time.perf_counter()
                change(number)
                times.append((time.perf_counter() - start) * 1e6)
        return statistics.median(times), max(times)

    return touch(lambda n: pairs.put(n * 4999 % LARGE, -n)), touch(elements.add)


SMALL_SIZES = (1, 3, 8, 12, 16, 32)


def _small_maps(limit: int) -> list[float]:
    """ns per touch of one user key under a snapshot, for several sizes of map, with tuples up to `limit` pairs."""
    return [_touch_one_of(size, limit) for size in SMALL_SIZES]


def _touch_one_of(size: int, limit: int) -> float:
    context = KeyContext(KeySchema.from_python(int), 1, KeyGroupRange(0, 0))
    registry = SnapshotRegistry()
    table = CopyOnWriteStateTable("maps", MapKind(IMMUTABLE, limit), context, registry)
    state = HeapMapState(table, "")
    user_keys = [f"user-{number}" for number in range(size)]
    for key in range(KEYS):
        context.set_current_key_and_group(key, 0)
        for user_key in user_keys:
            state.put(user_key, 0)

    def cycle(number: int) -> None:
        with registry.snapshot() as snapshot:
            for key in range(KEYS):
                context.set_current_key_and_group(key, 0)
                state.put(user_keys[key % size], number)
            table.changes(snapshot)

    return statistics.median(timed(partial(cycle, number)) for number in range(5)) / KEYS * 1e9


def _states() -> Any:
    map = CopyOnWriteStateMap(IMMUTABLE)
    for key in KEPT:
        map.put(key, "", 1)
    return map


def _maps_of_three() -> Any:
    context = KeyContext(KeySchema.from_python(int), 1, KeyGroupRange(0, 0))
    table = CopyOnWriteStateTable("maps", MapKind(IMMUTABLE), context, SnapshotRegistry())
    state = HeapMapState(table, "")
    for key in KEPT:
        context.set_current_key_and_group(key, 0)
        state.put("a", 1)
        state.put("b", 2)
        state.put("c", 3)
    return table


KEPT: list[int] = []
MAKERS: dict[str, Callable[[], Any]] = {
    "value entry: CopyOnWriteStateMap": _states,
    "value entry: dict[key]": lambda: dict.fromkeys(KEPT, 1),
    "value entry: dict[(key, ns)]": lambda: {(key, ""): 1 for key in KEPT},
    "map of 3 user keys: map state": _maps_of_three,
    "map of 3 user keys: dict of dicts": lambda: {key: {"a": 1, "b": 2, "c": 3} for key in KEPT},
}


def _memory() -> dict[str, float]:
    """Bytes per entry by resident size, keys and values not counted; each in a process of its own."""
    result = {}
    for name in MAKERS:
        command = [sys.executable, "-m", "benchmarks.collections_in_state", name]
        answer = subprocess.run(command, capture_output=True, text=True, check=True)
        result[name] = int(answer.stdout) / MAPS
    return result


def _print_growth(name: str) -> None:
    """Print by how much this process grows while a maker's result is held."""
    KEPT.extend(range(MAPS))
    gc.collect()
    before = _resident_now()
    held = MAKERS[name]()
    print(_resident_now() - before)
    del held


def _resident_now() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    _print_growth(sys.argv[1]) if len(sys.argv) > 1 else main()
