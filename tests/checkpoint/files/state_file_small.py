"""The smallest files that have everything: for tests that go through every bit of them."""

from __future__ import annotations

from typing import Any

from emberstate.checkpoint.files.limits import FileLimits
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import CorruptionError, RestoreRefusedError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

LIMITS = FileLimits(batch_bytes=4 * 1024 * 1024, footer_bytes=256 * 1024)


def small_backend() -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=2)
    backend.get_partitioned_state(ListStateDescriptor("list", int))
    backend.get_partitioned_state(MapStateDescriptor("map", str, int))
    backend.get_partitioned_state(ValueStateDescriptor("value", str))
    backend.get_timer_queue("timers")
    return backend


def fill(backend: HeapKeyedStateBackend, factor: int) -> None:
    for i in range(3):
        backend.set_current_key(f"k{i}")
        backend.get_partitioned_state(ListStateDescriptor("list", int)).add_all([i, factor])
        backend.get_partitioned_state(MapStateDescriptor("map", str, int)).put(f"u{factor}", i)
        backend.get_partitioned_state(ValueStateDescriptor("value", str)).update("v" * (factor + i))
        backend.get_timer_queue("timers").register(i * factor, "t")


def content(backend: HeapKeyedStateBackend) -> list[Any]:
    tables = [*backend.registered_kv_states.values(), backend.get_timer_queue("timers").table]
    return [sorted(table, key=repr) for table in tables]


def small_files() -> tuple[bytes, bytes, list[Any]]:
    """A base, a delta, and what they restore to together."""
    backend = small_backend()
    fill(backend, 1)
    with backend.snapshot() as snapshot:
        base = b"".join(BaseWriter(backend, snapshot))
        fill(backend, 5)
        return base, write_delta(backend, snapshot).data, content(backend)


def outcome(*files: bytes) -> Any:
    """What files restore to, or the error class if it is one of ours."""
    try:
        readers = [StateFileReader.of_bytes(data, LIMITS) for data in files]
        for reader in readers:
            for _ in reader.batches():
                pass
        backend = small_backend()  # only now, for it takes the most time
        restore(readers, backend)
    except (CorruptionError, RestoreRefusedError) as error:
        return type(error)
    return content(backend)
