"""`run_in_slot`: a Spark task's side of a slot. It finds or starts the slot's process, and streams the rows to it.

    connect (or spawn) → hello → WELCOME → request → (program) → GO → rows → END → answer

Until GO no input has been read: if the slot ends before, the client starts another. After GO the task fails, and Spark
runs it again. The client listens while it sends rows: a slot that fails says so at once. A slot that makes no progress
for too long is killed by the client that waits for it.

Thread safety: one thread at a time, that of the Spark task.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from emberstate.errors import EmberstateError, SlotError
from emberstate.spark.slot.address import Executor, SlotId, address_of
from emberstate.spark.slot.failure import raised
from emberstate.spark.slot.frames import (
    ConnectionEndedError,
    FrameType,
    RowSender,
    has_input,
    receive_frame,
    send_frame,
)
from emberstate.spark.slot.messages import Hello, SentProgram, SlotAnswer, SlotEnd, SlotFailure, SlotRequest
from emberstate.spark.slot.peer import SlotPeer
from emberstate.spark.slot.spawn import SpawnedSlot, spawn
from emberstate.spark.slot.watch import StalledError, WatchedConnection

_log = logging.getLogger("emberstate.spark")

#: How long a slot's process may take until it listens: it starts, and imports the library.
START_SECONDS: Final = 120.0
#: How many slots may end before GO until the task fails.
_TRIES: Final = 4
#: How long to wait for a process whose socket has ended, in seconds.
_FATE_SECONDS: Final = 2.0

#: Names of a slot's socket; the second and later ones are for when another user's process holds the first.
_NAMES: Final = 16
#: How long to wait for a worker that is about to start the slot, or a slot that is about to end, in seconds.
_TURN_SECONDS: Final = 0.005

#: Slots that this process has started and that still run, by pid.
_spawned: dict[int, SpawnedSlot] = {}


def run_in_slot(
    slot_id: SlotId,
    request: SlotRequest,
    program: Callable[[], bytes],
    batches: Iterator[pa.RecordBatch],
    schema: pa.Schema,
    *,
    executor: Executor | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SlotAnswer:
    """Run a request on the rows of `batches` in slot `slot_id` of this executor.

    `program` returns the pickled `SlotProgram` if the slot asks for it; `schema` is the rows' schema if there is no
    batch; `executor` owns the slot (default: the executor of the calling worker). `clock` measures the time without
    progress, in seconds.

    Raises:
        SlotError: the slot's process ended, or made no progress and was killed. Nothing is lost: run the task
            again. Or a later attempt has taken over.
        FencedError: the job was started again, and the slot serves the later start.
        EmberstateError: the slot raised it; an exception of another class becomes a UserFunctionError with its
            traceback.
    """
    client = _SlotClient(slot_id, Executor.of_this_worker() if executor is None else executor, clock)
    try:
        return client.run(request, program, batches, schema)
    except EmberstateError as error:
        error.located(operator=slot_id.operator, slot=slot_id.slot, batch=request.batch)
        raise


class _SlotClient:
    def __init__(self, slot_id: SlotId, executor: Executor, clock: Callable[[], float]) -> None:
        self._id = slot_id
        self._clock = clock
        self._executor = executor
        self._pid = 0  # of the slot's process; 0: not known yet
        self._fate = ""  # how the last process ended

    def run(
        self,
        request: SlotRequest,
        program: Callable[[], bytes],
        batches: Iterator[pa.RecordBatch],
        schema: pa.Schema,
    ) -> SlotAnswer:
        _forget_ended()
        with self._reach(request, program) as connection:
            try:
                with contextlib.suppress(ConnectionEndedError):
                    self._stream(connection, batches, schema)
                type_, payload = receive_frame(connection)  # or the failure of a slot that reads no more rows
            except ConnectionEndedError as error:
                raise SlotError(
                    f"{self._id}, batch {request.batch}: its process ended while it ran the task ({error}): "
                    f"{self._found_fate()}. Nothing is lost: the task can run again, and restores the state."
                ) from None
            except StalledError as stalled:
                fate = self._end_stalled(connection, stalled)
                raise SlotError(
                    f"{self._id}, batch {request.batch}: {fate} Nothing is lost: the task can run again, and restores "
                    f"the state. If one row or timer may take that long, give the pipeline a longer slot_stall."
                ) from None
            if type_ is FrameType.FAILURE:
                raise raised(SlotFailure.from_bytes(payload))
            return SlotAnswer.from_bytes(payload)

    def _stream(self, connection: WatchedConnection, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Send the rows, until their end or until the slot sends something."""
        first = next(batches, None)
        sender = RowSender(connection, schema if first is None else first.schema)
        if first is not None:
            for batch in itertools.chain((first,), batches):
                if has_input(connection):
                    return
                sender.send(batch)
        sender.end()
        send_frame(connection, FrameType.END, SlotEnd(sender.batches, sender.rows).to_bytes())

    # -- until GO -------------------------------------------------------------------------------------------

    def _reach(self, request: SlotRequest, program: Callable[[], bytes]) -> WatchedConnection:
        """A connection to a slot that has said GO."""
        for _ in range(_TRIES):
            connection = None
            try:
                connection = self._connected(request)
                if self._open(connection, request, program):
                    return connection
            except ConnectionEndedError:
                self._fate = self._found_fate()
            except StalledError as stalled:
                assert connection is not None
                self._fate = self._end_stalled(connection, stalled)
                _log.warning("%s, batch %d: %s Starting another.", self._id, request.batch, self._fate)
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            if connection is not None:
                connection.close()
        raise SlotError(
            f"{self._id}, batch {request.batch}: its process ended {_TRIES} times before it was ready, "
            f"lastly: {self._fate}. Nothing is lost."
        )

    def _open(self, connection: WatchedConnection, request: SlotRequest, program: Callable[[], bytes]) -> bool:
        """Send hello, request and program until the slot says GO; False if the slot gives way to a new one."""
        try:
            connection.sendall(Hello.of(self._id.token, request).to_bytes())
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEndedError(str(error)) from None
        type_, payload = receive_frame(connection)
        if type_ is FrameType.SUPERSEDED:
            return False
        if type_ is FrameType.WELCOME:
            if self._pid in _spawned:
                _spawned[self._pid].close()  # from here on it prints to the log
            send_frame(connection, FrameType.REQUEST, request.to_bytes())
            type_, payload = receive_frame(connection)
        if type_ is FrameType.NEED_PROGRAM:
            sent = SentProgram(tuple(sys.path), program())
            send_frame(connection, FrameType.PROGRAM, sent.to_bytes())
            type_, payload = receive_frame(connection)
        if type_ is FrameType.FAILURE:
            raise raised(SlotFailure.from_bytes(payload))
        if type_ is not FrameType.GO:
            raise ConnectionEndedError(f"expected GO, got {type_.name}")
        return True

    def _connected(self, request: SlotRequest) -> WatchedConnection:
        """A connection to the slot, by the first of its names that no other user holds."""
        for number in range(_NAMES):
            holder = "a process that does not listen"
            connection = self._connected_at(address_of(self._id, self._executor, number), request)
            if connection is not None:
                peer = SlotPeer(connection, self._id)
                if peer.uid == os.getuid():
                    self._pid = peer.pid
                    return WatchedConnection(connection, peer, self._id.stall_seconds, self._clock)
                holder = f"a process of user {peer.uid}"
                peer.close()
                connection.close()
            _log.warning("%s: name %d of its socket is held by %s", self._id, number, holder)
        raise SlotError(
            f"{self._id}: all {_NAMES} names of its socket are held by others, the last by {holder}. Find the "
            f"processes by /proc/net/unix (@emberstate-…) and stop them."
        )

    def _connected_at(self, address: bytes, request: SlotRequest) -> socket.socket | None:
        """A connection to the process that has this name, starting the slot if none has; None if it does not listen."""
        started: SpawnedSlot | None = None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.setblocking(False)
            try:
                connection.connect(address)
                return connection
            except (ConnectionRefusedError, ConnectionResetError, BlockingIOError) as error:
                connection.close()
                busy = isinstance(error, BlockingIOError)  # its queue of connections is full
            except BaseException:
                connection.close()
                raise
            if started is not None and started.ended:
                raise ConnectionEndedError("the slot ended before it listened")
            spawned = None if busy else spawn(self._id, address, self._executor, request.incarnation)
            if spawned is None:
                time.sleep(_TURN_SECONDS)
            else:
                started, self._pid = spawned, spawned.pid
                _spawned[spawned.pid] = spawned
        if started is None:
            return None
        started.kill()
        raise SlotError(
            f"{self._id}: its process did not listen within {START_SECONDS:g} s: {self._found_fate()}. Nothing is "
            f"lost."
        )

    # -- how it ended ---------------------------------------------------------------------------------------

    def _found_fate(self) -> str:
        """How the slot's process ended, if this worker started it."""
        spawned = _spawned.get(self._pid)
        if spawned is None:
            who = f"process {self._pid}" if self._pid else "a process"
            return f"{who} of another worker; see the executor's stderr log"
        return spawned.fate(_FATE_SECONDS)

    def _end_stalled(self, connection: WatchedConnection, stalled: StalledError) -> str:
        """Kill a slot that makes no progress; returns what to say of it."""
        condition = connection.peer.condition()
        ended = "and was killed" if connection.peer.kill() else "and cannot be killed from here: use kill -9"
        return (
            f"its process ({condition}) made no progress for {self._id.stall_seconds:g} s {ended}. What it was "
            f"doing: {stalled}."
        )


def _forget_ended() -> None:
    """Reap exited slots."""
    for pid, spawned in list(_spawned.items()):
        if spawned.ended:
            spawned.close()
            del _spawned[pid]
