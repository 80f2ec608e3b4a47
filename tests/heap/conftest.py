"""What the tests of the heap state share: how much to try, by whether the hot modules are compiled."""

from __future__ import annotations

import pytest

import emberstate.heap.map.copy_on_write_state_map
from emberstate import _hot

COMPILED = _hot.is_compiled(emberstate.heap.map.copy_on_write_state_map.__name__)


@pytest.fixture(scope="session")
def compiled() -> bool:
    """Whether the state map runs compiled; interpreted, tests try less."""
    return COMPILED


def pytest_report_header() -> str:
    """Say which of the two is tested."""
    return f"emberstate hot modules: {'compiled' if COMPILED else 'interpreted'}"
