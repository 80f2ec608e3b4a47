"""`SlotMailbox`: passes requests from the accept thread to the owner: one that is served, and one that waits.

Requests are ordered by (incarnation, batch, task attempt). A later request pre-empts both; none is served twice.

Thread safety: the accept thread calls `offer`, `close`, `idle_since` and `stuck_since`, the owner `take` and `done`.
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
    """The requests of one slot."""

    def __init__(self, incarnation: int, name: str, became_idle: Callable[[], None]) -> None:
        self.incarnation = incarnation
        self._name = name
        self._became_idle = became_idle
        self._latest = _FIRST
        self._changed = threading.Condition()
        self._waiting: SlotConnection | None = None
        self._current: SlotConnection | None = None
        self._closed = False
        self._pre_empted_at: float | None = None  # when the current one was
        self._idle_since = time.monotonic()

    def refusal(self, order: tuple[int, int, int]) -> FencedError | SlotError | None:
        """Why a request is rejected; None if it is accepted."""
        if order[0] < self.incarnation:
            return FencedError(
                f"{self._name} serves incarnation {self.incarnation} of the job, got a request of incarnation "
                f"{order[0]}: the job was started again. Stop the older start.",
                batch=order[1],
            )
        if order <= self._latest:
            said = "came before" if order == self._latest else "is older than the latest"
            return SlotError(
                f"{self._name}: the request for batch {order[1]} by task attempt {order[2]} {said} (batch "
                f"{self._latest[1]}, task attempt {self._latest[2]}). Nothing was changed; its result is not needed.",
                batch=order[1],
            )
        return None

    def offer(self, connection: SlotConnection) -> None:
        """Give the owner a request that `refusal` accepts."""
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
        """The next request; None if none has come within `timeout`. Check `closed` first."""
        with self._changed:
            if self._waiting is None and not self._closed:
                self._changed.wait(timeout)
            if not self._closed:
                self._current, self._waiting = self._waiting, None
            return self._current

    def done(self) -> None:
        """End the request that was taken."""
        with self._changed:
            self._current = self._pre_empted_at = None
            self._idle_since = time.monotonic()
        self._became_idle()

    def close(self, reason: str) -> None:
        """Serve nothing more, and pre-empt the request that is served."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, None
            if self._current is not None:
                self._current.pre_empt(SlotError(f"the slot's process ends: {reason}. Nothing is lost."))
            self._changed.notify()
        if waiting is not None:
            waiting.close()

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets. Takes no lock: another thread may have held it."""
        for connection in (self._current, self._waiting):
            if connection is not None:
                connection.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def stuck_since(self) -> float | None:
        """Since when a pre-empted request has kept another one waiting by its rows; None if none does."""
        with self._changed:
            streams = self._current is not None and self._current.streams
            return self._pre_empted_at if streams and self._waiting is not None else None

    def idle_since(self) -> float | None:
        """Since when, by the monotonic clock, there has been no request; None while there is one."""
        with self._changed:
            return self._idle_since if self._current is None and self._waiting is None else None
