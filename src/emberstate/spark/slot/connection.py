"""`SlotConnection`: a slot's end of a task's connection. The accept thread may pre-empt it at any time.

Thread safety: the owner's thread sends and receives; `pre_empt` is the accept thread's.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from emberstate.errors import EmberstateError
from emberstate.spark.slot.frames import (
    ConnectionEndedError,
    FrameType,
    frame,
    receive_frame,
    receive_rows,
    send_while_draining,
)
from emberstate.spark.slot.messages import Hello, SlotFailure

_LOOK_MILLIS: Final = 500


class PreEmptedError(Exception):
    """A later request has taken over, or the process ends. The task gets `reason`."""

    def __init__(self, reason: EmberstateError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SlotConnection:
    """A connection whose hello was accepted."""

    def __init__(self, connection: socket.socket, hello: Hello) -> None:
        self.hello = hello
        self._connection = connection
        self._pre_empted: EmberstateError | None = None
        #: Whether rows are being processed: the owner then calls `check` often.
        self.streams = False

    def pre_empt(self, reason: EmberstateError) -> None:
        """Have the owner end this request at its next `check`, between two record batches."""
        self._pre_empted = reason
        with contextlib.suppress(OSError):  # the peer is gone
            self._connection.shutdown(socket.SHUT_RD)

    def check(self) -> None:
        """Raise `PreEmptedError` if the request was pre-empted."""
        if self._pre_empted is not None:
            raise PreEmptedError(self._pre_empted)

    def receive(self, expected: FrameType) -> bytes:
        """The payload of the next frame, which must be of this type."""
        try:
            type_, payload = receive_frame(self._connection)
        except ConnectionEndedError:
            self.check()
            raise
        if type_ is not expected:
            raise ConnectionEndedError(f"expected {expected.name}, got {type_.name}")
        return payload

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the record batches as they come."""
        self.streams = True
        try:
            for batch in receive_rows(self._connection):
                self.check()
                yield batch
        except ConnectionEndedError:
            self.check()
            raise

    def send(self, type_: FrameType, payload: bytes = b"") -> None:
        """Send a frame that the peer waits for. Ends if the request is pre-empted, should the peer not read."""
        memory = memoryview(frame(type_, payload))
        poll = select.poll()
        try:
            while memory:
                try:
                    memory = memory[self._connection.send(memory, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    self.check()
                    poll.register(self._connection, select.POLLOUT)
                    poll.poll(_LOOK_MILLIS)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEndedError(str(error)) from None

    def fail(self, failure: SlotFailure) -> None:
        """Send a failure, also to a peer that is still sending rows."""
        message = frame(FrameType.FAILURE, failure.to_bytes())
        if self._pre_empted is not None:  # another task waits: send only what can be sent at once
            with contextlib.suppress(OSError):
                self._connection.send(message, socket.MSG_DONTWAIT)
        else:
            send_while_draining(self._connection, message, lambda: self._pre_empted is not None)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._connection.close()
