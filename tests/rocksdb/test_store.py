"""What could go wrong between rocksdict and the states: code in values, damage, early ends, and large attempts."""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import rocksdict

from emberstate.errors import CodecError, StorageError
from emberstate.rocksdb.store import Point, RocksDBStore
from emberstate.rocksdb.touched_keys import MOST_RUNS, TouchedKeys, read_run, write_run
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from tests.raising import raising
from tests.rocksdb.conftest import LIMIT
from tests.state.support import BackendFactory


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.file),)


@pytest.mark.reliability(27)
def test_a_pickle_among_the_pairs_is_not_run(make_backend: BackendFactory, tmp_path: Path) -> None:
    """Catches: rocksdict's own mode, in which reading a value unpickles it."""
    trap = tmp_path / "it ran"
    plain = rocksdict.Rdict(str(tmp_path / "plain"))
    plain[b"key"] = Payload(trap)
    plain.close()
    shutil.copytree(tmp_path / "plain", tmp_path / "raw")
    raw = rocksdict.Rdict(str(tmp_path / "raw"), rocksdict.Options(raw_mode=True))
    (planted,) = raw.values()
    raw.close()
    assert b"mkdir" in planted

    backend = make_backend()
    backend.set_current_key("ann")
    backend.get_timer_queue("t").register(1, "x")
    states = {
        "v": backend.get_partitioned_state(ValueStateDescriptor("v", str)),
        "l": backend.get_partitioned_state(ListStateDescriptor("l", str)),
        "m": backend.get_partitioned_state(MapStateDescriptor("m", str, str)),
    }
    states["v"].update("x")
    states["l"].add("x")
    states["m"].put("x", "x")
    snapshot = backend.snapshot()
    for raw_key, _ in list(backend._store.scan(b"\x00")):
        backend._store.put(raw_key, planted)
    uses = [
        states["v"].value,
        states["l"].get,
        lambda: states["m"]["x"],
        lambda: list(states["m"].items()),
        lambda: backend.changes(snapshot),
        backend.check_invariants,
    ]
    for use in uses:
        with pytest.raises(CodecError):
            use()
    snapshot.release()
    assert not trap.exists()
    rocksdict.Rdict(str(tmp_path / "plain"))[b"key"]  # the trap works
    assert trap.exists()


def test_damaged_files_are_an_error_and_not_an_early_end(make_backend: BackendFactory) -> None:
    """Catches: a list, a map or a base that ends where a block cannot be read, as rocksdict's items() does."""
    backend = make_backend()
    backend.set_current_key("ann")
    state = backend.get_partitioned_state(ListStateDescriptor("l", bytes))
    state.add_all([os.urandom(100) for _ in range(20_000)])
    backend._store._db.flush()
    table = max(backend.local_path.glob("db/*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    with raising(StorageError, "Corruption", path=str(backend.local_path)):
        state.get()
    with raising(StorageError, "Corruption", path=str(backend.local_path)):
        backend.snapshot()


def test_scans_end_where_their_prefix_ends(make_backend: BackendFactory) -> None:
    """Catches: a bound that RocksDB reads after rocksdict has freed it; some scans then end too early."""
    backend = make_backend(int)
    descriptor = MapStateDescriptor("m", int, int)
    for key in range(20):
        backend.set_current_key(key)
        backend.get_partitioned_state(descriptor).put_all(dict.fromkeys(range(50), key))
    for _ in range(50):
        for key in range(20):
            backend.set_current_key(key)
            assert list(backend.get_partitioned_state(descriptor).values()) == [key] * 50
        assert len(list(backend.get_keys("m"))) == 20


def digest(backend: Any) -> str:
    """Stands for all content."""
    found = hashlib.sha256()
    for _, table in sorted(backend.registered_kv_states.items()):
        for entry in table:
            found.update(repr(entry).encode())
    return found.hexdigest()


def test_an_attempt_of_three_times_the_limit_is_rolled_back(make_backend: BackendFactory) -> None:
    """Catches: a log that only lives in memory, or that forgets what it has moved to disk."""
    backend = make_backend(int)
    value = backend.get_partitioned_state(ValueStateDescriptor("v", bytes))
    pairs = backend.get_partitioned_state(MapStateDescriptor("m", int, bytes))
    elements = backend.get_partitioned_state(ListStateDescriptor("l", int))
    queue = backend.get_timer_queue("t")
    for key in range(3000):
        backend.set_current_key(key)
        value.update(b"old")
        pairs.put_all({0: b"old", 1: b"old"})
        elements.add_all([1, 2])
        queue.register(key, "old")
    before = digest(backend)
    committed = backend.snapshot()
    written = 0
    for key in range(1_000_000):
        backend.set_current_key(key % 6000 if key < 12_000 else key)
        value.update(os.urandom(600))
        pairs.put(2, os.urandom(200))
        pairs.remove(1)
        elements.add(3)
        queue.delete(key, "old")
        written += 800
        if written > 3 * LIMIT:
            break
    statistics = backend.statistics().store
    assert statistics.touched_runs > 0
    assert statistics.touched <= LIMIT // 8
    backend.roll_back(committed)
    assert digest(backend) == before
    assert [queue.poll(10**9).time for _ in range(3000)] == list(range(3000))
    backend.roll_back(committed)
    backend.check_invariants()
    assert backend.changes(committed) == []
    assert backend.statistics().store.touched_runs == 0
    assert list(backend.local_path.glob("touched-*")) == []
    committed.release()


def test_logs_are_compacted_and_end_where_they_say(tmp_path: Path) -> None:
    """Catches: more open files than a process may have, keys lost by merging, and a log that lost its end."""
    touched = TouchedKeys()
    for number in range(MOST_RUNS + 1):
        touched.keys = {f"{number % 7} {i}".encode() for i in range(10)}
        touched.spill(tmp_path / f"{number}.run")
    touched.compact(tmp_path / "all.run")
    assert list(tmp_path.iterdir()) == [tmp_path / "all.run"]
    assert list(read_run(tmp_path / "all.run")) == sorted(f"{k} {i}".encode() for k in range(7) for i in range(10))
    data = (tmp_path / "all.run").read_bytes()
    for length in range(len(data)):
        (tmp_path / "cut.run").write_bytes(data[:length])
        with raising(StorageError, path=str(tmp_path / "cut.run")):
            list(read_run(tmp_path / "cut.run"))
    with pytest.raises(StorageError):
        write_run(tmp_path / "all.run", [b"a"])  # a run is never overwritten


def test_a_released_snapshot_costs_nothing_more(make_backend: BackendFactory) -> None:
    """Catches: a log that grows for a snapshot that is gone, or is thrown away for one that is not."""
    backend = make_backend(int)
    state = backend.get_partitioned_state(ValueStateDescriptor("v", int))
    oldest, middle, newest = backend.snapshot(), backend.snapshot(), backend.snapshot()
    backend.set_current_key(1)
    state.update(1)
    newest.release()
    middle.release()
    state.clear()
    backend.set_current_key(2)
    state.update(2)
    assert [change[0] for _, _, change in backend.changes(oldest)] == [2]
    oldest.release()
    for key in range(100):
        backend.set_current_key(key)
        state.update(key)
    assert backend.statistics().store.touched == 0
    assert backend.statistics().live_snapshots == 0


def test_an_iteration_notices_what_a_clean_up_removes(make_backend: BackendFactory) -> None:
    """Catches: an iteration that goes on over user keys which the clean-up of expired state took away meanwhile."""
    backend = make_backend()
    ttl = TtlConfig(timedelta(seconds=10))
    state = backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ttl))
    backend.set_current_key("ann")
    backend.ttl_clock.processing_time = 0
    state.put_all({number: number for number in range(5)})
    backend.ttl_clock.processing_time = 5_000_000
    state.put_all({number: number for number in range(5, 10)})
    walk = iter(state.items())
    next(walk)
    backend.ttl_clock.processing_time = 12_000_000
    assert backend.clean_up(1000) == 5
    with pytest.raises(RuntimeError, match="during iteration"):
        next(walk)
    assert dict(state.items()) == {number: number for number in range(5, 10)}


def test_a_point_that_another_thread_releases_meanwhile_is_not_checked(
    make_backend: BackendFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a check of the invariants that fails since a base was written, and its snapshot released, meanwhile."""
    backend = make_backend()
    backend.set_current_key("ann")
    state = backend.get_partitioned_state(ValueStateDescriptor("v", str))
    state.update("x")
    snapshots = [backend.snapshot(), backend.snapshot()]
    settle = RocksDBStore.settle

    def released_then_settled(store: RocksDBStore) -> None:
        snapshots[0].release()
        settle(store)

    before = backend._store.points
    scan = Point.scan

    def scanned(point: Point, prefix: bytes) -> Any:
        found = list(scan(point, prefix))
        if point is snapshots[0].point:
            monkeypatch.setattr(RocksDBStore, "settle", released_then_settled)
        return found

    monkeypatch.setattr(Point, "scan", scanned)
    backend.check_invariants()
    assert (before, backend._store.points) == (2, 1)
    snapshots[1].release()
