"""Hide a container from the cyclic collector; interpreted, a no-op (`gc_sight.pxd` has the C function).

The collector visits every reference of every list it tracks. For the pages of a large table that is a pause of tens
of milliseconds for nothing: entries are part of no cycle.
"""

from __future__ import annotations

from typing import Any


def untrack(container: list[Any]) -> int:
    """Do nothing; the compiled modules use the C function of the same name."""
    return 0
