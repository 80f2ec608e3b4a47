"""The point in time behind a snapshot: what `changes` and `roll_back` of state maps and backends go by.

A snapshot of a map, of a backend and of a registry are three views of one such point, so any of them is taken
wherever one is asked for.
"""

from __future__ import annotations

from typing import Any, TypeVar

P = TypeVar("P")


def point_of(snapshot: Any, kind: type[P]) -> P:
    """The point in time, of class `kind`, that `snapshot` is a view of."""
    point = getattr(snapshot, "point", snapshot)
    if not isinstance(point, kind):
        raise TypeError(
            f"a live snapshot is needed, as `snapshot()` of this map or backend gives it, found {snapshot!r:.100}"
        )
    return point
