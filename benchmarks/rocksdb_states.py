"""The RocksDB backend beside bare rocksdict calls on the same pairs, and beside the heap backend.

rocksdict is given the bytes of keys and values ready made, in the same order, in a database with the same
options. The backend finds the entry, encodes, decodes, and logs what it touches for a live snapshot, as in
every transaction. Setting the current key, which is the same for every backend and is no access to state, is
done on both sides. For the choice of a backend: the same operations on the heap.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocksdict

from benchmarks.measure import SEED, Target, print_table, save, side_by_side
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.rocksdb.memory_budget import MemoryBudget, options_for
from emberstate.rocksdb.raw_keys import successor
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

KEYS = 50_000
PER_MAP = 20
LIMIT = 256 * 1024 * 1024
PROMISED = 1.5

VALUE = ValueStateDescriptor("value", int)
PAIRS = MapStateDescriptor("pairs", str, int)
ELEMENTS = ListStateDescriptor("elements", int)

Run = Callable[[int], Any]


class States:
    """The states of a backend, filled."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.value = backend.get_partitioned_state(VALUE)
        self.pairs = backend.get_partitioned_state(PAIRS)
        self.elements = backend.get_partitioned_state(ELEMENTS)
        self.keys = list(range(KEYS))
        random.Random(SEED).shuffle(self.keys)
        self.map_keys = self.keys[: KEYS // PER_MAP]
        self.names = [f"shop-{number}" for number in range(PER_MAP)]
        for key in self.keys:
            backend.set_current_key(key)
            self.value.update(key)
            self.elements.add(key)
        for key in self.map_keys:
            backend.set_current_key(key)
            self.pairs.put_all(dict.fromkeys(self.names, key))
        self.snapshot = backend.snapshot()  # as in every transaction

    def get_value(self, number: int) -> None:
        """Read the value of every key."""
        set_key, value = self.backend.set_current_key, self.value.value
        for key in self.keys:
            set_key(key)
            value()

    def put_value(self, number: int) -> None:
        """Write the value of every key."""
        set_key, update = self.backend.set_current_key, self.value.update
        for key in self.keys:
            set_key(key)
            update(key)

    def get_pairs(self, number: int) -> None:
        """Read every user key of some maps."""
        set_key, get = self.backend.set_current_key, self.pairs.get
        for key in self.map_keys:
            set_key(key)
            for name in self.names:
                get(name)

    def put_pairs(self, number: int) -> None:
        """Write every user key of some maps."""
        set_key, put = self.backend.set_current_key, self.pairs.put
        for key in self.map_keys:
            set_key(key)
            for name in self.names:
                put(name, key)

    def iterate(self, number: int) -> int:
        """Walk through some maps."""
        count = 0
        for key in self.map_keys:
            self.backend.set_current_key(key)
            for _ in self.pairs.items():
                count += 1
        return count

    def append(self, number: int) -> None:
        """Append an element for every key."""
        set_key, add = self.backend.set_current_key, self.elements.add
        for key in self.keys:
            set_key(key)
            add(key)


class Bare:
    """rocksdict alone, with the pairs that the backend has."""

    def __init__(self, directory: Path, states: States) -> None:
        options, *self.kept = options_for(MemoryBudget.of(LIMIT))
        self.db = rocksdict.Rdict(str(directory), options)
        write_options = rocksdict.WriteOptions()
        write_options.disable_wal = True  # type: ignore[assignment, method-assign]
        self.db.set_write_options(write_options)
        backend = states.backend
        self.set_key = backend.set_current_key
        self.values: list[tuple[int, bytes, bytes]] = []
        self.lists: list[tuple[int, bytes, bytes]] = []
        self.maps: list[tuple[int, bytes, list[bytes], bytes]] = []
        tables = backend.registered_kv_states
        value, pairs, elements = (tables[name] for name in ("value", "pairs", "elements"))
        for key in states.keys:
            self.set_key(key)
            self.values.append((key, value.entry("").current(), value.encode(key)))
            self.lists.append((key, elements.entry("").current(), elements.encode(key)))
        encoded = [pairs.user_key_codec.encode(name) for name in states.names]
        for key in states.map_keys:
            self.set_key(key)
            prefix = pairs.entry("").current()
            self.maps.append((key, prefix, [prefix + name for name in encoded], pairs.encode(key)))
        # In the order of the backend's own: where pairs are in memory makes a difference.
        for position, (value_pair, element) in enumerate(zip(self.values, self.lists, strict=True)):
            self.db.put(*value_pair[1:])
            self.db.put(element[1] + position.to_bytes(8, "big"), element[2])
        self.put_pairs(0)

    def get_value(self, number: int) -> None:
        """Read a pair for every key."""
        set_key, get = self.set_key, self.db.get
        for key, raw, _ in self.values:
            set_key(key)
            get(raw)

    def put_value(self, number: int) -> None:
        """Write a pair for every key."""
        set_key, put = self.set_key, self.db.put
        for key, raw, value in self.values:
            set_key(key)
            put(raw, value)

    def get_pairs(self, number: int) -> None:
        """Read the pairs of every map."""
        set_key, get = self.set_key, self.db.get
        for key, _, raws, _ in self.maps:
            set_key(key)
            for raw in raws:
                get(raw)

    def put_pairs(self, number: int) -> None:
        """Write the pairs of every map."""
        set_key, put = self.set_key, self.db.put
        for key, _, raws, value in self.maps:
            set_key(key)
            for raw in raws:
                put(raw, value)

    def iterate(self, number: int) -> int:
        """Walk through the pairs of every map."""
        count = 0
        for key, prefix, _, _ in self.maps:
            self.set_key(key)
            options = rocksdict.ReadOptions()
            options.set_iterate_upper_bound(successor(prefix))
            for _ in self.db.items(from_key=prefix, read_opt=options):
                count += 1
        return count

    def append(self, number: int) -> None:
        """Write a new pair for every key."""
        set_key, put = self.set_key, self.db.put
        for position, (key, prefix, value) in enumerate(self.lists):
            set_key(key)
            put(prefix + ((number + 1) * KEYS + position).to_bytes(8, "big"), value)


def main(rounds: int = 7) -> dict[str, Any]:
    """Measure, print and save."""
    schema = KeySchema.from_python(int)
    results: dict[str, Any] = {}
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as directory:
        backend = RocksDBKeyedStateBackend(schema, directory, memory_limit=LIMIT)
        states, heap = States(backend), States(HeapKeyedStateBackend(schema))
        bare = Bare(Path(directory) / "bare", states)
        operations: dict[str, tuple[Run, Run, Run]] = {
            "value get": (states.get_value, bare.get_value, heap.get_value),
            "value put": (states.put_value, bare.put_value, heap.put_value),
            "map get": (states.get_pairs, bare.get_pairs, heap.get_pairs),
            "map put": (states.put_pairs, bare.put_pairs, heap.put_pairs),
            "map iterate": (states.iterate, bare.iterate, heap.iterate),
            "list append": (states.append, bare.append, heap.append),
        }
        for name, (ours, theirs, on_heap) in operations.items():
            mine, raw, ratio = side_by_side(ours, theirs, rounds)
            _, plain, times_heap = side_by_side(ours, on_heap, 3)
            rows.append((name, 1e9 * mine / KEYS, 1e9 * raw / KEYS, ratio, 1e9 * plain / KEYS, times_heap))
            results[name] = {
                "nanoseconds": 1e9 * mine / KEYS,
                "rocksdict nanoseconds": 1e9 * raw / KEYS,
                "to rocksdict": ratio,
                "heap nanoseconds": 1e9 * plain / KEYS,
                "to heap": times_heap,
            }
            targets.append(Target(f"{name}, time of the bare rocksdict calls", ratio, PROMISED))
        states.snapshot.release()
        backend.close()
        bare.db.close()
    header = ("operation", "RocksDB ns", "rocksdict ns", "ratio", "heap ns", "times heap")
    print_table(f"RocksDB states, {KEYS:,} keys", header, rows)
    save("rocksdb_states", KEYS, results, targets)
    return results


if __name__ == "__main__":
    main()
