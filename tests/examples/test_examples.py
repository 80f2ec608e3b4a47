"""Every example runs as it stands, and gives the same through crashes and rescales."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.examples.support import Rows, battered, clean
from tests.patience import PATIENCE
from tests.testing.support import BACKENDS

EXAMPLES = Path(__file__).parents[2] / "examples"
START = datetime(2026, 5, 4, tzinfo=UTC)


def payments(rng: random.Random) -> Rows:
    amounts = [0.5, 20.0, 30.0, 600.0, 2_000.0]
    return [
        (f"card-{rng.randrange(6)}", rng.choice(["payment"] * 5 + ["confirmation"]), rng.choice(amounts), time)
        for time in times(rng, 60)
    ]


def pages(rng: random.Random) -> Rows:
    return [(f"visitor-{rng.randrange(5)}", f"/{rng.randrange(9)}", time) for time in times(rng, 900)]


def messages(rng: random.Random) -> Rows:
    return [(f"m{rng.randrange(40)}", f"body {number}") for number in range(80)]


def sales(rng: random.Random) -> Rows:
    return [
        (f"shop-{rng.randrange(4)}", f"fruit-{rng.randrange(9)}", float(rng.randrange(-3, 9))) for _ in range(80)
    ]


def times(rng: random.Random, most_seconds: int) -> list[datetime]:
    """Times that only grow."""
    now, found = START, []
    for _ in range(80):
        now += timedelta(seconds=rng.randrange(1, most_seconds))
        found.append(now)
    return found


JOBS = {"fraud_rules": payments, "session_windows": pages, "deduplicate": messages, "top_n": sales}


@pytest.mark.parametrize("name", sorted(file.stem for file in EXAMPLES.glob("*.py")))
def test_it_runs(name: str, tmp_path: Path) -> None:
    """Catches: an example that the code has moved away from, or that says nothing."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


@pytest.mark.reliability(23)
@pytest.mark.parametrize(
    "backend", ["fs", *(pytest.param(name, marks=pytest.mark.long) for name in sorted(BACKENDS) if name != "fs")]
)
@pytest.mark.parametrize("name", sorted(JOBS))
def test_crashes_and_rescales_change_nothing(name: str, backend: str, tmp_path: Path) -> None:
    """Catches: a job whose results depend on how its input was cut, on crashes, or on the number of slots."""
    make: Any = importlib.import_module(f"examples.{name}").harness
    rows = JOBS[name](random.Random(name))
    expected = clean(make, rows)
    seed = f"{name} {backend}"

    assert len(expected) > 10
    assert battered(make, rows, seed, state_backend=BACKENDS[backend](tmp_path)) == expected, f"seed {seed!r}"
