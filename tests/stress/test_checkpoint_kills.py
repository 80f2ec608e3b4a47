"""The script of the long run of killed processes; short ones are in tests/checkpoint/commit/test_kills.py."""

from __future__ import annotations

import json

import pytest

from tests.stress.checkpoint_kills import main


def test_the_script_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a failed run that nobody can repeat; a count of kills that were none."""
    assert main(["--iterations", "2", "--seed", "3"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "seed 3"
    result = json.loads(last)
    assert (result["iterations_without_mismatch"], result["mismatches"]) == (2, 0)
    assert result["kills"] == sum(result["kills_by_point"].values()) > 0
