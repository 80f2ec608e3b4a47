"""`Emissions`: the origin of every row that an operator emits, its key and time. The next stage orders rows by it.

Where a stage with event time follows, two columns go along with the rows of the main output, which no sink sees: the
bytes of the key that a row was put out for, and how far event time had got there. Rows of one key come in the order in
which they were put out. None of it depends on parallelism or on how the input was cut into batches.

How far event time had got: for a row, and for a timer whose time had passed when it was registered, the watermark. For
a timer at time t that event time moves to, the last moment before t: what a window up to t puts out may be stamped
within that window.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from typing import Any, Protocol

from emberstate.runtime.rows.times import MIN_TIME
from emberstate.state.key_bytes import key_bytes
from emberstate.state.key_context import KeyContext

#: The key's bytes, and microseconds.
Origin = tuple[bytes, int]


class EventClock(Protocol):
    """Knows how far event time has got: a function's context."""

    @property
    def event_now(self) -> int: ...


class Emissions:
    """The origins of the rows of one output, noted after every call of the function."""

    __slots__ = ("_context", "_encode", "_keys", "_rows", "moving", "origins")

    def __init__(self, rows: list[Any], context: EventClock, keys: KeyContext) -> None:
        """`rows` is the list that rows are appended to."""
        self._rows = rows
        self._context = context
        self._keys = keys
        self._encode = key_bytes(keys.key_schema).encode
        #: Whether event time is still on its way to the current timer.
        self.moving = False
        #: The origins of `rows` up to the last note.
        self.origins: list[Origin] = []

    def note(self) -> None:
        """Note the current row or timer as the origin of the rows since the last note."""
        new = len(self._rows) - len(self.origins)
        if new:
            key = self._keys.key  # none for a broadcast row
            reached = max(self._context.event_now - self.moving, MIN_TIME)
            self.origins += [(b"" if key is None else self._encode(key), reached)] * new

    def attach(self) -> list[Any]:
        """Return the rows, which are tuples, with their origins, and start over."""
        rows = [(*row, *origin) for row, origin in zip(self._rows, self.origins, strict=True)]
        self.origins = []
        return rows
