"""State files: what a commit costs beside a whole base, and a restore beside `pickle.load` of the same dict.

Writing: deltas of 1 % of a table of texts to ints, against bases of all of it. Restore: the same table against
`pickle.load` of the same dict, taking turns; and tables of small maps and of small lists, for which nothing was
promised. Records in columns beside the same records in objects: deltas of 100,000 touched keys, bases and restores.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import random
import statistics
from typing import Any

import numpy as np

from benchmarks.measure import SEED, Target, print_table, save, side_by_side, timed
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.key_bytes import key_bytes
from emberstate.state.states import AggregateFunction

ENTRIES = 1_000_000
COUNT = ValueStateDescriptor("count", int)
SEEN = MapStateDescriptor("seen", str, int)
LOG = ListStateDescriptor("log", int)
DELTA = "delta, us per touched key of {:,}"


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


@dataclasses.dataclass(frozen=True)
class Total:
    """A record, as declared aggregates keep one per key."""

    n: int
    total: int | None
    best: float | None


class Newest(AggregateFunction[Total, Total, Total]):
    """Only declares the state."""

    def create_accumulator(self) -> Total:
        """Nothing yet."""
        return Total(0, None, None)

    def add(self, value: Total, accumulator: Total) -> Total:
        """The newer one."""
        return value

    def get_result(self, accumulator: Total) -> Total:
        """The record."""
        return accumulator

    def merge(self, one: Total, other: Total) -> Total:
        """The newer one."""
        return other


TOTAL = AggregatingStateDescriptor("total", Newest(), Total)


def records(where: str, touched: int, rounds: int) -> dict[str, Any]:
    """Microseconds per entry of records in columns or in objects: deltas of half of them, bases, restores."""
    names = [f"user-{i:08d}" for i in range(2 * touched)]
    rng = np.random.default_rng(SEED)
    backend = backend_in(where)
    table: Any = backend.registered_states["total"].table
    write(backend, table, names, rng)
    deltas = []
    for _ in range(rounds):
        with backend.snapshot() as snapshot:
            write(backend, table, [names[i] for i in rng.permutation(2 * touched)[:touched]], rng)
            deltas.append(timed(lambda snapshot=snapshot: write_delta(backend, snapshot)))  # type: ignore[misc]
    base = base_of(backend)
    bases = [timed(lambda: base_of(backend)) for _ in range(rounds)]
    restores = [timed(lambda: restore([StateFileReader.of_bytes(base)], backend_in(where))) for _ in range(rounds)]
    return {
        f"records in {where}: {DELTA.format(touched)}": statistics.median(deltas) / touched * 1e6,
        f"records in {where}: base, us per key": statistics.median(bases) / len(names) * 1e6,
        f"records in {where}: restore, us per key": statistics.median(restores) / len(names) * 1e6,
    }


def backend_in(where: str) -> HeapKeyedStateBackend:
    """A backend with a state of records in columns or in objects."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    (backend.get_column_state if where == "columns" else backend.get_partitioned_state)(TOTAL)
    return backend


def write(backend: HeapKeyedStateBackend, table: Any, names: list[str], rng: np.random.Generator) -> None:
    """Set the records of some keys, whichever way they are kept."""
    count = len(names)
    n, total, best = rng.integers(1000, size=count), rng.integers(1 << 40, size=count), rng.random(count)
    values = [Total(*fields) for fields in zip(n.tolist(), total.tolist(), best.tolist(), strict=True)]
    groups = [backend.context.grouper(name) for name in names]
    if hasattr(table, "put_all"):
        encode = key_bytes(backend.context.key_schema).encode
        table.put_all([encode(name) for name in names], groups, [""] * count, values)
        return
    for name, value in zip(names, values, strict=True):
        backend.set_current_key(name)
        table.put("", value)


def main(entries: int = ENTRIES, rounds: int = 9) -> dict[str, Any]:
    """Measure, print and save."""
    rng = random.Random(SEED)
    numbers = {f"user-{i:08d}": rng.randrange(1 << 40) for i in range(entries)}
    results, base = writing(numbers, 3)
    results |= restoring("texts to ints", COUNT, numbers, base, rounds)
    results |= composites(entries, 3)
    results |= records("columns", entries // 10, 5) | records("objects", entries // 10, 5)
    print_table(f"State files, {entries:,} entries", ("what", "measured"), list(results.items()))
    targets = [
        Target("delta of 1 %, time of a base", results["delta to base, time"], 1 / 20),
        Target("delta of 1 %, bytes of a base", results["delta to base, bytes"], 1 / 20),
        Target("restore, time of pickle.load", results["texts to ints: restore to pickle.load"], 1.0),
        Target("records in columns, delta", results[f"records in columns: {DELTA.format(entries // 10)}"], 0.5, "us"),
    ]
    save("state-files", entries, results, targets)
    return results


if __name__ == "__main__":
    main()
