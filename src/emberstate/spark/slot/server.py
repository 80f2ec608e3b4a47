"""`SlotServer`: the accept thread of a slot's process. It accepts or rejects requests, and decides when the process
ends.

It reads hellos only, a fixed number of bytes each, and never waits for a single peer. Accepted requests go to the
owner's thread through the mailbox. While the owner works, the server publishes its progress.

The process ends when the executor or pyspark's daemon ends, at SIGTERM or SIGHUP, after an idle time, when the function
does not return though a later attempt waits, and when a request of a later incarnation comes: a new process then
imports the user's modules anew.

Thread safety: the process's main thread, which gets the signals; `wake` is for any thread.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Final

from emberstate.errors import EmberstateError, SlotError
from emberstate.spark.slot.address import peer_of
from emberstate.spark.slot.connection import SlotConnection
from emberstate.spark.slot.failure import failure_of
from emberstate.spark.slot.frames import FrameType, frame
from emberstate.spark.slot.mailbox import SlotMailbox
from emberstate.spark.slot.messages import HELLO_SIZE, Hello, token_digest
from emberstate.spark.slot.process_watch import ProcessWatch
from emberstate.spark.slot.progress import ProgressPage

#: How long a peer may take from connecting to its hello, in seconds.
HELLO_SECONDS: Final = 20.0
#: How often it publishes the owner's progress, in seconds.
_PROGRESS_SECONDS: Final = 0.25
_BACKLOG: Final = 64
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class SlotServer:
    """Listens for requests."""

    def __init__(
        self,
        listener: socket.socket,
        watch: ProcessWatch,
        token: str,
        idle_seconds: Callable[[], float],
        stuck_seconds: float,
        page: ProgressPage,
    ) -> None:
        self._listener = listener
        self._watch = watch
        self._token = token_digest(token)
        self._idle_seconds = idle_seconds
        self._stuck_seconds = stuck_seconds
        self._page = page
        self._pending: dict[int, tuple[socket.socket, bytearray, float]] = {}
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._ending = ""
        for number in _SIGNALS:
            signal.signal(number, lambda number, _: self._end(signal.Signals(number).name))
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def wake(self) -> None:
        """Have the server check everything again."""
        with contextlib.suppress(BlockingIOError):
            self._wake.send(b"w")

    def serve(self, mailbox: SlotMailbox) -> str:
        """Listen until there is a reason to end, and return it. No peer can connect afterwards."""
        for process in self._watch.gone:
            self._end(f"process {process.pid} had ended")
        self._listener.setblocking(False)
        self._listener.listen(_BACKLOG)
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        for descriptor in self._watch.descriptors:
            poll.register(descriptor, select.POLLIN)
        while not self._ending:
            for descriptor, _ in poll.poll(self._patience(mailbox)):
                self._handle(descriptor, poll, mailbox)
            self._page.update()
            self._drop_late(poll)
            self._end_if_idle(mailbox)
            self._end_if_stuck(mailbox)
        self._stop_listening()
        return self._ending

    def _handle(self, descriptor: int, poll: select.poll, mailbox: SlotMailbox) -> None:
        if descriptor == self._listener.fileno():
            self._accept(poll)
        elif descriptor == self._woken.fileno():
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        elif (ended := self._watch.ended(descriptor)) is not None:
            self._end(f"process {ended.pid} has ended, the executor or pyspark's daemon")
        elif descriptor in self._pending:
            self._hear(descriptor, poll, mailbox)

    def _end(self, reason: str) -> None:
        self._ending = self._ending or reason

    # -- requests -------------------------------------------------------------------------------------------

    def _accept(self, poll: select.poll) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._end("no file descriptor is left")
            return  # otherwise the peer has closed the connection already
        if (uid := peer_of(connection)[1]) != os.getuid():
            _refuse(connection, SlotError(f"the slot belongs to user {os.getuid()}, the caller is {uid}"))
            return
        self._pending[connection.fileno()] = (connection, bytearray(), time.monotonic() + HELLO_SECONDS)
        poll.register(connection, select.POLLIN)

    def _hear(self, descriptor: int, poll: select.poll, mailbox: SlotMailbox) -> None:
        connection, heard, _ = self._pending[descriptor]
        try:
            data = connection.recv(HELLO_SIZE - len(heard), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        heard += data
        if data and len(heard) < HELLO_SIZE:
            return
        poll.unregister(descriptor)
        del self._pending[descriptor]
        if data:
            self._decide(connection, Hello.from_bytes(bytes(heard)), mailbox)
        else:
            connection.close()

    def _decide(self, connection: socket.socket, hello: Hello | None, mailbox: SlotMailbox) -> None:
        if hello is None or not hmac.compare_digest(hello.token_digest, self._token):
            _refuse(connection, SlotError("the caller does not have the token of this slot"))
            return
        if hello.incarnation > mailbox.incarnation:
            self._end(f"superseded by incarnation {hello.incarnation}")
            self._stop_listening()  # before the caller binds the name anew
            _say(connection, frame(FrameType.SUPERSEDED))
            connection.close()
            return
        refusal = mailbox.refusal(hello.order)
        if refusal is not None:
            _refuse(connection, refusal)
            return
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [frame(FrameType.WELCOME)], [self._page.descriptor], socket.MSG_DONTWAIT)
        mailbox.offer(SlotConnection(connection, hello))

    def _drop_late(self, poll: select.poll) -> None:
        now = time.monotonic()
        for descriptor, (connection, _, deadline) in list(self._pending.items()):
            if deadline <= now:
                poll.unregister(descriptor)
                del self._pending[descriptor]
                connection.close()

    # -- the end --------------------------------------------------------------------------------------------

    def _patience(self, mailbox: SlotMailbox) -> float:
        """How long to poll, in milliseconds."""
        deadlines = [deadline for _, _, deadline in self._pending.values()]
        since = mailbox.idle_since()
        deadlines.append(time.monotonic() + _PROGRESS_SECONDS if since is None else since + self._idle_seconds())
        if (since := mailbox.stuck_since()) is not None:
            deadlines.append(since + self._stuck_seconds)
        return max(0.0, min(deadlines) - time.monotonic()) * 1000 + 1

    def _end_if_idle(self, mailbox: SlotMailbox) -> None:
        since = mailbox.idle_since()
        if since is not None and not self._pending and time.monotonic() >= since + self._idle_seconds():
            self._end(f"idle for {self._idle_seconds():g} s")

    def _end_if_stuck(self, mailbox: SlotMailbox) -> None:
        """End if a superseded task keeps a later one waiting: that gets a new process."""
        since = mailbox.stuck_since()
        if since is not None and time.monotonic() >= since + self._stuck_seconds:
            self._end(f"the function did not return within {self._stuck_seconds:g} s, and a later attempt waits")

    def abandon(self) -> None:
        """In a forked child: close the parent's sockets."""
        self._listener.close()
        for connection, _, _ in self._pending.values():
            connection.close()

    def _stop_listening(self) -> None:
        self._listener.close()
        for connection, _, _ in self._pending.values():
            connection.close()
        self._pending.clear()


def _refuse(connection: socket.socket, error: EmberstateError) -> None:
    _say(connection, frame(FrameType.FAILURE, failure_of(error, "request refused").to_bytes()))
    connection.close()


def _say(connection: socket.socket, data: bytes) -> None:
    """Send a small message on a new connection, which has room for it."""
    with contextlib.suppress(OSError):
        connection.send(data, socket.MSG_DONTWAIT)
