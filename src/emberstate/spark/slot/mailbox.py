"""`SlotMailbox`: the request that is being served and the one that waits, between accept thread and owner.

Order is by (incarnation, batch, task attempt). A later request pre-empts both; nothing is ever served twice.

Thread safety: `offer`, `close`, `idle_since` and `stuck_since` are the accept thread's, `take` and `done` the owner's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from emberstate.errors import FencedError, SlotError
from emberstate.spark.slot.connection import SlotConnection
from emberstate.spark.slot.failure import failure_of

_FIRST: Final = (-1, -1, -1)


class SlotMailbox:
    """Where the owner gets its work from."""

    def __init__(self, incarnation: int, name: str, became_idle: Callable[[], None]) -> None:
        self.incarnation = incarnation
        self._name = name
        self._became_idle = became_idle
        self._latest = _FIRST
        self._changed = threading.Condition()
        self._waiting: SlotConnection | None = None
        self._current: SlotConnection | None = None
        self._closed = False
        self._pre_empted_at: float | None = None  # the current one
        self._idle_since = time.monotonic()

    def refusal(self, order: tuple[int, int, int]) -> FencedError | SlotError | None:
        """Why a request is not served; None if it is."""
        if order[0] < self.incarnation:
            return FencedError(
                f"{self._name} serves incarnation {self.incarnation} of the job, and the request is of incarnation "
                f"{order[0]}: the job was started again since. Stop the older one."
            )
        if order <= self._latest:
            said = "has come before" if order == self._latest else "is older than one that has come"
            return SlotError(
                f"{self._name}: the request for batch {order[1]} by task attempt {order[2]} {said} (batch "
                f"{self._latest[1]}, task attempt {self._latest[2]}). Nothing was changed; its result is not wanted."
            )
        return None

    def offer(self, connection: SlotConnection) -> None:
        """Have the owner serve a request, which was not refused, as soon as it can."""
        order = connection.hello.order
        reason = SlotError(f"task attempt {order[2]} for batch {order[1]} has taken over")
        with self._changed:
            replaced, self._waiting = self._waiting, connection
            self._latest = order
            if self._current is not None:
                self._current.pre_empt(reason)
                self._pre_empted_at = self._pre_empted_at or time.monotonic()
            self._changed.notify()
        if replaced is not None:
            replaced.pre_empt(reason)
            replaced.fail(failure_of(reason, self._name))
            replaced.close()

    def take(self, timeout: float) -> SlotConnection | None:
        """The next request; None if none has come in time. Ask `closed` first."""
        with self._changed:
            if self._waiting is None and not self._closed:
                self._changed.wait(timeout)
            if not self._closed:
                self._current, self._waiting = self._waiting, None
            return self._current

    def done(self) -> None:
        """The request that was taken has been served."""
        with self._changed:
            self._current = self._pre_empted_at = None
            self._idle_since = time.monotonic()
        self._became_idle()

    def close(self, reason: str) -> None:
        """Serve nothing more; what runs is pre-empted."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, None
            if self._current is not None:
                self._current.pre_empt(SlotError(f"the slot's process ends: {reason}. Nothing is lost."))
            self._changed.notify()
        if waiting is not None:
            waiting.close()

    def abandon(self) -> None:
        """In a forked child: close the sockets, which are the parent's. No lock: it may have been held."""
        for connection in (self._current, self._waiting):
            if connection is not None:
                connection.close()

    @property
    def closed(self) -> bool:
        """Whether nothing is served any more."""
        return self._closed

    def stuck_since(self) -> float | None:
        """Since when rows have been processed for which nobody waits, while somebody else does."""
        with self._changed:
            streams = self._current is not None and self._current.streams
            return self._pre_empted_at if streams and self._waiting is not None else None

    def idle_since(self) -> float | None:
        """Since when, by the monotonic clock, there has been nothing to do; None while there is."""
        with self._changed:
            return self._idle_since if self._current is None and self._waiting is None else None
