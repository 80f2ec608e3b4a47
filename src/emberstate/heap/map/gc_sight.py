"""Take a container out of the cyclic collector's sight; here, interpreted, a no-op (`gc_sight.pxd` has the real one).

The collector visits every reference of every list it can see, which for the pages of a large table is a pause of
tens of milliseconds for nothing: entries are no part of any cycle.
"""

from __future__ import annotations

from typing import Any


def untrack(container: list[Any]) -> int:
    """Do nothing; the compiled modules use the C function of the same name."""
    return 0
