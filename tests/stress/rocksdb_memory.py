"""Does the RocksDB backend keep its memory limit? State of several times the limit, in a process that is watched.

A child process first writes state files of one transaction, for what that loads and keeps is no backend's. Then
it opens an empty backend, notes the most memory it has ever had (`VmHWM`), and works: it fills a value, a map
and a list state in transactions, each with a live snapshot and the delta of a commit, reads at random, lets an
attempt that writes three times the limit fail and rolls it back, and writes a base from a snapshot while it goes
on. Then `VmHWM` must be below what it was plus 1.5 times the limit. A second child puts the same data on the
heap, and must be above: otherwise the proof proves nothing.

    python tests/stress/rocksdb_memory.py --state-mib 1024 --limit-mib 200 --record
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

MIB = 1024 * 1024
RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "rocksdb_memory.json"

VALUE = 1000  # bytes of a value
PARTS = 4  # values per key: one value, two user values, one element
TRANSACTION_KEYS = 1000
FACTOR = 1.5


@dataclasses.dataclass(frozen=True)
class Watched:
    """What a child saw."""

    backend: str
    keys: int
    state_bytes: int
    high_water_opened: int
    high_water: int
    base_bytes: int
    rolled_back_bytes: int
    seconds: float

    @property
    def grown(self) -> int:
        """By how much the high-water mark rose after opening, in bytes."""
        return self.high_water - self.high_water_opened


def high_water() -> int:
    """The most memory this process has ever had, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


class Job:
    """What both backends go through."""

    def __init__(self, backend: Any, seed: int) -> None:
        self.backend = backend
        self.chance = random.Random(seed)
        self.value = backend.get_partitioned_state(ValueStateDescriptor("value", bytes))
        self.pairs = backend.get_partitioned_state(MapStateDescriptor("pairs", int, bytes))
        self.elements = backend.get_partitioned_state(ListStateDescriptor("elements", bytes))
        self.committed = backend.snapshot()

    def write(self, key: int) -> None:
        """Write everything that a key has; nothing of it can be compressed."""
        self.backend.set_current_key(key)
        self.value.update(self.chance.randbytes(VALUE))
        self.pairs.put_all({number: self.chance.randbytes(VALUE) for number in range(2)})
        self.elements.update([self.chance.randbytes(VALUE)])

    def commit(self) -> None:
        """Make the delta, as a commit does, and go on from there."""
        write_delta(self.backend, self.committed)
        newer = self.backend.snapshot()
        self.committed.release()
        self.committed = newer

    def fill(self, keys: int) -> None:
        """All keys, in transactions."""
        for start in range(0, keys, TRANSACTION_KEYS):
            for key in range(start, min(keys, start + TRANSACTION_KEYS)):
                self.write(key)
            self.commit()

    def look(self, keys: int, count: int) -> None:
        """Read at random."""
        for _ in range(count):
            self.backend.set_current_key(self.chance.randrange(keys))
            assert len(self.value.value()) == VALUE
            assert len(self.pairs.get(1)) == VALUE
            assert len(self.elements.get()) == 1

    def fail(self, keys: int, size: int) -> int:
        """An attempt that writes `size` bytes and fails; what it wrote."""
        self.backend.set_current_key(0)
        before = self.value.value()
        written = key = 0
        while written < size:
            self.write(key % (2 * keys))
            key += 1
            written += PARTS * VALUE
        self.backend.roll_back(self.committed)
        self.backend.set_current_key(0)
        assert self.value.value() == before
        return written

    def base(self, keys: int) -> int:
        """Write a base while another transaction runs; its size."""
        size = 0
        with self.backend.snapshot() as snapshot:
            for part in BaseWriter(self.backend, snapshot):
                size += len(part)
                self.write(self.chance.randrange(keys))
        self.commit()
        return size


def warm_up(seed: int) -> None:
    """Write a delta and a base of one transaction."""
    job = Job(HeapKeyedStateBackend(KeySchema.from_python(int)), seed)
    job.fill(TRANSACTION_KEYS)
    job.base(TRANSACTION_KEYS)
    job.committed.release()


def child(kind: str, limit: int, state_bytes: int, seed: int) -> Watched:
    """Do the work in this process."""
    keys = -(-state_bytes // (PARTS * VALUE))
    schema = KeySchema.from_python(int)
    warm_up(seed)
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        backend: Any = (
            HeapKeyedStateBackend(schema)
            if kind == "heap"
            else RocksDBKeyedStateBackend(schema, directory, memory_limit=limit)
        )
        opened = high_water()
        job = Job(backend, seed)
        job.fill(keys)
        rolled_back = base = 0
        if kind != "heap":  # which is above the bound by now
            job.look(keys, min(keys, 50_000))
            rolled_back = job.fail(keys, 3 * limit)
            base = job.base(keys)
        most = high_water()
        job.committed.release()
        backend.close()
        seconds = round(time.perf_counter() - started, 1)
    return Watched(kind, keys, keys * PARTS * VALUE, opened, most, base, rolled_back, seconds)


def watched(kind: str, limit: int, state_bytes: int, seed: int) -> Watched:
    """Do the work in a process of its own."""
    command = [sys.executable, __file__, "--child", kind, "--seed", str(seed)]
    command += ["--limit-mib", str(limit // MIB), "--state-mib", str(state_bytes // MIB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the {kind} child failed: {done.stderr[-2000:]}")
    return Watched(**json.loads(done.stdout.splitlines()[-1]))


def prove(limit: int, state_bytes: int, seed: int) -> dict[str, Any]:
    """Both children, and whether the bound holds for the one and not for the other."""
    rocksdb, heap = (watched(kind, limit, state_bytes, seed) for kind in ("rocksdb", "heap"))
    bound = int(FACTOR * limit)
    return {
        "name": "rocksdb-memory",
        "seed": seed,
        "limit": limit,
        "bound": bound,
        "state_to_limit": round(rocksdb.state_bytes / limit, 2),
        "rocksdb": dataclasses.asdict(rocksdb),
        "heap": dataclasses.asdict(heap),
        "rocksdb_grown_to_limit": round(rocksdb.grown / limit, 2),
        "heap_grown_to_limit": round(heap.grown / limit, 2),
        "rocksdb_within": rocksdb.grown < bound,
        "heap_beyond": heap.grown > bound,
    }


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--state-mib", type=int, default=1056)
    parser.add_argument("--limit-mib", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULT.name}")
    parser.add_argument("--child", choices=("rocksdb", "heap"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    limit, state_bytes = options.limit_mib * MIB, options.state_mib * MIB
    if options.child is not None:
        print(json.dumps(dataclasses.asdict(child(options.child, limit, state_bytes, seed))))
        return 0
    print(f"seed {seed}", flush=True)
    result = prove(limit, state_bytes, seed)
    print(json.dumps(result, indent=2))
    if options.record:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0 if result["rocksdb_within"] and result["heap_beyond"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
