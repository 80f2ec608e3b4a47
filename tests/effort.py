"""How much the property tests try: a part of it in `make test`, all of it in `make long`."""

from __future__ import annotations

import os
from typing import Final

#: Set by `make long`, for the tests that Hypothesis finds the examples of.
ALL: Final = os.environ.get("EMBERSTATE_EXAMPLES") == "all"


def examples(count: int) -> int:
    """How many examples to try of a test that tries so many in `make long`."""
    return count if ALL else max(count // 4, min(count, 5))
