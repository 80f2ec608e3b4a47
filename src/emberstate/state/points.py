"""The point in time behind a snapshot, which `changes` and `roll_back` of state maps and backends compare with.

A snapshot of a map, of a backend and of a registry are three views of one point, and each is accepted wherever a
snapshot is expected.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from emberstate.errors import StateTypeError


class PointInTime(Protocol):
    """A point in time of everything in one backend; any thread may release it."""

    def check_live(self) -> None:
        """Raise `LifecycleError` if the point was released."""

    def release(self) -> None:
        """Release the point; a second call does nothing."""


P = TypeVar("P", bound=PointInTime)


def point_of(snapshot: Any, kind: type[P]) -> P:
    """The point in time, of class `kind`, that `snapshot` is a view of."""
    point = getattr(snapshot, "point", snapshot)
    if not isinstance(point, kind):
        what = f"expected a snapshot that this map or backend took with `snapshot()`, got {snapshot!r:.100}"
        raise StateTypeError(what, option="snapshot", found=type(snapshot).__name__)
    return point
