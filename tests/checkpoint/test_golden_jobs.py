"""Whole jobs of every format version, stopped half-way by the version that wrote them, go on as if never stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.checkpoint.golden.make_jobs import BACKENDS, FOLDER, JOBS, run

VERSIONS = (1,)


@pytest.mark.reliability(24)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("written", BACKENDS)
@pytest.mark.parametrize("job", JOBS)
def test_a_golden_job_goes_on(version: int, job: str, written: str, backend: str, tmp_path: Path) -> None:
    """Catches: timers, windows or columns that an earlier version wrote, on either backend, and that this one reads as
    something else.
    """
    folder = FOLDER / f"v{version}-jobs"
    shutil.copytree(folder / f"{job}-{written}", tmp_path / "location")

    with JOBS[job](BACKENDS[backend](tmp_path / "location")) as harness:
        found = run(harness, 1)

    assert found == json.loads((folder / "expected.json").read_text(encoding="utf-8"))[job]
