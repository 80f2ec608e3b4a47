"""Fixtures of the harness tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberstate.checkpoint.backends import StateBackend
from tests.testing.support import BACKENDS


@pytest.fixture(params=sorted(BACKENDS))
def state_backend(request: pytest.FixtureRequest, tmp_path: Path) -> StateBackend:
    """Every state backend, in an empty folder."""
    return BACKENDS[request.param](tmp_path)
