"""The script of the long run of killed Spark processes; short ones are in tests/spark/."""

from __future__ import annotations

import json

import pytest

from tests.stress.spark_kills import main


@pytest.mark.long
@pytest.mark.spark
def test_the_script_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a failed run that nobody can repeat; a count of kills that were none."""
    assert main(["--iterations", "1", "--drivers", "1", "--seed", "3"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "seed 3"
    result = json.loads(last)
    assert result["mismatches"] == 0
    assert result["kills"] == sum(result["kills_by_kind"].values()) > 0
