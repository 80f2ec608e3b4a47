"""The same logical state gives the same bytes, in any process."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.heap.backend import HeapKeyedStateBackend
from tests.checkpoint.files.state_file_world import STEPS, do, make_backend

ROOT = Path(__file__).parents[3]


def base_of(backend: HeapKeyedStateBackend) -> bytes:
    with backend.snapshot() as snapshot:
        return b"".join(BaseWriter(backend, snapshot))


@pytest.mark.reliability(20)
@given(st.lists(STEPS, max_size=40), st.randoms(use_true_random=False))
def test_the_way_to_a_state_does_not_show(steps: list[Any], random: Any) -> None:
    """Catches: rows in hash or insertion order: a restored state has neither of the original's."""
    backend = make_backend()
    for step in steps:
        do(backend, step)
    data = base_of(backend)
    names = list(backend.registered_kv_states)
    random.shuffle(names)
    restored = make_backend(names=tuple(names))
    restore([StateFileReader.of_bytes(data)], restored)
    assert base_of(restored) == data


def some_state() -> tuple[bytes, bytes]:
    """A base and a delta of many keys."""
    backend = make_backend()
    for i in range(150):
        do(backend, ("total", f"key-{i}", "", i))
        do(backend, ("seen many", f"key-{i % 40}", "w1", i % 14))
        do(backend, ("notes", f"key-{i}", "", i, "n", {"b": b"1", "a": b"2"}))
        do(backend, ("visits", f"key-{i}", "", ["x", "y"]))
        do(backend, ("timer", f"key-{i % 30}", "", "event", i, "a"))
        do(backend, ("last", f"key-{i}", "", b"l"))
    base = base_of(backend)
    with backend.snapshot() as snapshot:
        for i in range(100):
            do(backend, ("seen many", f"key-{i}", "w1", i % 15))
            do(backend, ("unsee", f"key-{i}", "w1", "u3"))
            do(backend, ("clear", f"key-{i}", "", "total" if i % 2 else "visits"))
        delta = write_delta(backend, snapshot).data
    return base, delta


@pytest.mark.reliability(20)
@pytest.mark.reliability(30)
def test_other_processes_write_the_same_bytes() -> None:
    """Catches: an order that follows Python's salted hashes, the locale or the time zone."""
    program = (
        "import hashlib; from tests.checkpoint.files.test_state_file_determinism import some_state; "
        "print(*(hashlib.sha256(data).hexdigest() for data in some_state()))"
    )
    expected = [hashlib.sha256(data).hexdigest() for data in some_state()]
    for seed, zone in (("0", "UTC"), ("1", "Asia/Kolkata"), ("4242", "America/New_York")):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "TZ": zone,
            "LC_ALL": "C",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split() == expected
