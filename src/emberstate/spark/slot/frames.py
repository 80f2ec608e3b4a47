"""Frames and rows on a socket: a frame is a type, a length and a payload; rows are an Arrow IPC stream between two.

Large buffers of rows are not copied: they go to the socket as they are, small ones together, and arrive in memory that
Arrow reads in place.

Thread safety: one thread per direction.
"""

from __future__ import annotations

import enum
import select
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import pyarrow as pa

_HEADER: Final = struct.Struct("<BQ")
#: Writes below this size are joined.
_SMALL: Final = 16 * 1024
_TOGETHER: Final = 64 * 1024
#: Bytes of unwanted input to read at once.
_DRAINED: Final = 256 * 1024


class FrameType(enum.IntEnum):
    """The type of a frame, as on the wire."""

    # from the task
    REQUEST = 1
    PROGRAM = 2
    END = 3
    # from the slot
    WELCOME = 16
    SUPERSEDED = 17
    NEED_PROGRAM = 18
    GO = 19
    ANSWER = 20
    FAILURE = 21


_TYPES: Final = frozenset(FrameType)


class ConnectionEndedError(Exception):
    """The peer has closed the connection, or broken the protocol. Never leaves this package."""


class Wire(Protocol):
    """The part of a socket that frames and rows need."""

    def fileno(self) -> int: ...

    def sendall(self, data: Any, /) -> None: ...

    def recv_into(self, memory: memoryview, /) -> int: ...


def frame(type_: FrameType, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return _HEADER.pack(type_, len(payload)) + payload


def send_frame(connection: Wire, type_: FrameType, payload: bytes = b"") -> None:
    """Send a frame; blocks until it is sent."""
    try:
        connection.sendall(frame(type_, payload))
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ConnectionEndedError(str(error)) from None


def receive_frame(connection: Wire) -> tuple[FrameType, bytes]:
    """The next frame; blocks until it is here."""
    type_, length = _HEADER.unpack(receive_exactly(connection, _HEADER.size))
    if type_ not in _TYPES:
        raise ConnectionEndedError(f"the peer sent a frame of unknown type {type_}")
    return FrameType(type_), bytes(receive_exactly(connection, length)) if length else b""


def receive_exactly(connection: Wire, size: int) -> memoryview:
    """The next `size` bytes, in memory of their own."""
    memory = memoryview(pa.allocate_buffer(size))
    position = 0
    while position < size:
        try:
            count = connection.recv_into(memory[position:])
        except ConnectionResetError as error:
            raise ConnectionEndedError(str(error)) from None
        if not count:
            raise ConnectionEndedError(f"the stream ends {size - position} bytes early")
        position += count
    return memory


def has_input(connection: Wire) -> bool:
    """Whether a read would return at once, with data or the end."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def send_while_draining(connection: socket.socket, data: bytes, gave_up: Callable[[], bool]) -> None:
    """Send data that the peer does not expect, and discard what it sends, until it closes the connection.

    A peer that blocks in its own sending would otherwise never read this; and closing a socket with unread input would
    discard what the peer has not read.
    """
    memory, position = memoryview(data), 0
    poll = select.poll()
    poll.register(connection, select.POLLIN | select.POLLOUT)
    try:
        while not gave_up():
            for _, events in poll.poll(1000):
                if events & ~select.POLLOUT and not _take(connection):
                    return
                if events & select.POLLOUT and position < len(memory):
                    position += connection.send(memory[position:], socket.MSG_DONTWAIT)
                    if position == len(memory):
                        poll.modify(connection, select.POLLIN)
    except (BrokenPipeError, ConnectionResetError):
        return


def _take(connection: socket.socket) -> bool:
    """Discard some input; False at its end."""
    try:
        return bool(connection.recv(_DRAINED, socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True


# -- rows -------------------------------------------------------------------------------------------------------


class _Sink:
    """A file for Arrow to write to."""

    closed = False

    def __init__(self, connection: Wire) -> None:
        self._connection = connection
        self._small: list[bytes] = []
        self._size = 0

    def write(self, data: Any) -> int:
        """Called by Arrow. A large buffer is sent without a copy."""
        size = len(data)
        if size < _SMALL:
            self._small.append(bytes(data))
            self._size += size
            if self._size >= _TOGETHER:
                self.flush()
        else:
            self.flush()
            self._send(data)
        return size

    def flush(self) -> None:
        """Send the joined writes."""
        if self._small:
            data = b"".join(self._small)
            self._small, self._size = [], 0
            self._send(data)

    def _send(self, data: Any) -> None:
        try:
            self._connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEndedError(str(error)) from None

    def close(self) -> None:
        """Called by Arrow; the connection stays."""


class _Source:
    """A file for Arrow to read from; reads no more of the connection than Arrow asks for."""

    closed = False

    def __init__(self, connection: Wire) -> None:
        self._connection = connection

    def read(self, size: int) -> Any:
        """Called by Arrow."""
        return receive_exactly(self._connection, size)

    def readable(self) -> bool:
        """True, for Arrow."""
        return True

    def close(self) -> None:
        """Called by Arrow; the connection stays."""


class RowSender:
    """Sends record batches, then the end of the stream."""

    def __init__(self, connection: Wire, schema: pa.Schema) -> None:
        self._sink = _Sink(connection)
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._sink, "w"), schema)
        self.batches = self.rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch; blocks while the socket is full."""
        self._writer.write_batch(batch)
        self._sink.flush()
        self.batches += 1
        self.rows += batch.num_rows

    def end(self) -> None:
        """Send the end of the stream."""
        self._writer.close()
        self._sink.flush()


def receive_rows(connection: Wire) -> Iterator[pa.RecordBatch]:
    """Yields the record batches as they come."""
    reader = pa.ipc.open_stream(pa.PythonFile(_Source(connection), "r"))
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        yield batch
