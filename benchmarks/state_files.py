"""State files: what a commit costs beside a whole base, and a restore beside `pickle.load` of the same dict.

Writing: deltas of 1 % of a table of texts to ints, against bases of all of it. Restore: the same table against
`pickle.load` of the same dict, taking turns; and tables of small maps and of small lists, for which nothing was
promised.
"""

from __future__ import annotations

import io
import pickle
import random
import statistics
from typing import Any

from benchmarks.measure import SEED, Target, print_table, save, side_by_side, timed
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

ENTRIES = 1_000_000
COUNT = ValueStateDescriptor("count", int)
SEEN = MapStateDescriptor("seen", str, int)
LOG = ListStateDescriptor("log", int)


def backend_of(descriptor: StateDescriptor) -> tuple[HeapKeyedStateBackend, Any]:
    """A backend with one state."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    return backend, backend.get_partitioned_state(descriptor)


def base_of(backend: HeapKeyedStateBackend) -> bytes:
    """A base of everything."""
    with backend.snapshot() as snapshot:
        return b"".join(BaseWriter(backend, snapshot))


def restored(descriptor: StateDescriptor, data: bytes) -> HeapKeyedStateBackend:
    """A backend restored from a file."""
    backend, _ = backend_of(descriptor)
    restore([StateFileReader.of_bytes(data)], backend)
    return backend


def writing(numbers: dict[str, int], rounds: int) -> tuple[dict[str, Any], bytes]:
    """Bases and deltas of the same table."""
    backend, count = backend_of(COUNT)
    for key, number in numbers.items():
        backend.set_current_key(key)
        count.update(number)
    base = base_of(backend)
    rng = random.Random(SEED)
    keys = list(numbers)
    base_times, delta_times, deltas = [], [], []
    for _ in range(rounds):
        base_times.append(timed(lambda: base_of(backend)))
        with backend.snapshot() as snapshot:
            for key in rng.sample(keys, len(keys) // 100):
                backend.set_current_key(key)
                count.update(rng.randrange(1 << 40))
            delta_times.append(timed(lambda snapshot=snapshot: write_delta(backend, snapshot)))  # type: ignore[misc]
            deltas.append(write_delta(backend, snapshot).data)
    merge_time = timed(lambda: merge_deltas([StateFileReader.of_bytes(delta) for delta in deltas]))
    return {
        "base seconds": statistics.median(base_times),
        "base bytes": len(base),
        "delta entries": len(keys) // 100,
        "delta seconds": statistics.median(delta_times),
        "delta bytes": len(deltas[-1]),
        "delta to base, time": statistics.median(delta_times) / statistics.median(base_times),
        "delta to base, bytes": len(deltas[-1]) / len(base),
        f"seconds to merge {rounds} deltas": merge_time,
    }, base


def restoring(name: str, descriptor: StateDescriptor, plain: Any, base: bytes, rounds: int) -> dict[str, Any]:
    """Restore against pickle.load, by turns."""
    pickled = pickle.dumps(plain, protocol=pickle.HIGHEST_PROTOCOL)
    ours, theirs, ratio = side_by_side(
        lambda _: restored(descriptor, base), lambda _: pickle.load(io.BytesIO(pickled)), rounds
    )
    return {
        f"{name}: restore seconds": ours,
        f"{name}: pickle.load seconds": theirs,
        f"{name}: restore to pickle.load": ratio,
    }


def composites(entries: int, rounds: int) -> dict[str, Any]:
    """Restore of maps of 4 and of lists of 4."""
    results: dict[str, Any] = {}
    for name, descriptor in (("maps of 4", SEEN), ("lists of 4", LOG)):
        backend, state = backend_of(descriptor)
        plain: dict[str, Any] = {}
        for i in range(entries // 4):
            key = f"user-{i:08d}"
            backend.set_current_key(key)
            if descriptor is SEEN:
                plain[key] = {f"shop-{i % 997 + j}": i + j for j in range(4)}
                state.put_all(plain[key])
            else:
                plain[key] = [i + j for j in range(4)]
                state.add_all(plain[key])
        results |= restoring(name, descriptor, plain, base_of(backend), rounds)
    return results


def main(entries: int = ENTRIES, rounds: int = 9) -> dict[str, Any]:
    """Measure, print and save."""
    rng = random.Random(SEED)
    numbers = {f"user-{i:08d}": rng.randrange(1 << 40) for i in range(entries)}
    results, base = writing(numbers, 3)
    results |= restoring("texts to ints", COUNT, numbers, base, rounds)
    results |= composites(entries, 3)
    print_table(f"State files, {entries:,} entries", ("what", "measured"), list(results.items()))
    targets = [
        Target("delta of 1 %, time of a base", results["delta to base, time"], 1 / 20),
        Target("delta of 1 %, bytes of a base", results["delta to base, bytes"], 1 / 20),
        Target("restore, time of pickle.load", results["texts to ints: restore to pickle.load"], 1.0),
    ]
    save("state-files", entries, results, targets)
    return results


if __name__ == "__main__":
    main()
