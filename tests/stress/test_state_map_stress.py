"""A short run of `state_map_stress`; the long one is recorded in benchmarks/results."""

from __future__ import annotations

import pytest

from tests.heap.conftest import COMPILED
from tests.stress.state_map_stress import main, stress


@pytest.mark.reliability(18)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_operations_agree_with_a_dict(seed: int) -> None:
    """Catches: what needs a long history: merged images, side branches, growth under several snapshots."""
    counts = stress(60_000 if COMPILED else 8_000, seed)

    assert counts.snapshots > 100
    assert counts.rollbacks > 10
    assert counts.invariant_checks > 5


def test_the_script_prints_its_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a failed run that nobody can repeat."""
    assert main(["--operations", "100", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("seed 3\n")
    assert '"ok": true' in printed
