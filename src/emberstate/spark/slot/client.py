"""`run_in_slot`: what a Spark task does. It finds the slot's process or starts it, and has it run the rows.

    connect (or spawn) → hello → WELCOME → request → (program) → GO → rows → END → answer

Until GO nothing of the input has been taken: if the slot ends before, another one is started. Afterwards the task
fails, and Spark runs it again. While rows are sent the client listens: a slot that fails says so at once. One that
makes no progress for too long is ended, by whoever waits for it.

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

__all__ = ["SlotId", "run_in_slot"]

_log = logging.getLogger("emberstate.spark")

#: How long a slot's process may take until it listens: it starts, and imports the library.
START_SECONDS: Final = 120.0
#: So many slots may end before they say GO.
_TRIES: Final = 4
#: A process that has ended is one soon after its socket.
_FATE_SECONDS: Final = 2.0

#: So many names a slot has: others than the first are for when somebody else holds it.
_NAMES: Final = 16
#: How long to wait for one who is about to start the slot, or to end, in seconds.
_TURN_SECONDS: Final = 0.005

#: The slots that this process has started and that have not ended, by pid: to know how they end.
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
    """Have slot `slot_id` of this executor run a request on the rows of `batches`.

    `program` gives the pickled `SlotProgram` if the slot asks for it; `schema` is that of the rows if no batch comes
    to tell it; `executor` is whom the slot belongs to (default: the executor of the calling worker). `clock` gives
    the seconds for which the slot makes no progress.

    Raises:
        SlotError: the slot ended meanwhile, or was ended since it made no progress; nothing is lost, run the task
            again. Or a later attempt has taken over.
        FencedError: the job was started again, and the slot serves that start.
        EmberstateError: what the slot itself raised; of other classes, a UserFunctionError with the traceback.
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
        self._pid = 0  # of the slot's process, once it is known
        self._fate = ""  # of the last one that is gone

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
                type_, payload = receive_frame(connection)  # or the last words of one that takes no more rows
            except ConnectionEndedError as error:
                raise SlotError(
                    f"{self._id}, batch {request.batch}: its process ended while it ran the task ({error}): "
                    f"{self._found_fate()}. Nothing is lost: run the task again, and the state is restored."
                ) from None
            except StalledError as stalled:
                fate = self._end_stalled(connection, stalled)
                raise SlotError(
                    f"{self._id}, batch {request.batch}: {fate} Nothing is lost: run the task again, and the state "
                    f"is restored. If one row or timer may take so long, give the pipeline a longer slot_stall."
                ) from None
            if type_ is FrameType.FAILURE:
                raise raised(SlotFailure.from_bytes(payload))
            return SlotAnswer.from_bytes(payload)

    def _stream(self, connection: WatchedConnection, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        """Send the rows, unless the slot has something to say."""
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
        """A connection to a slot that is where the request starts."""
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
                _log.warning("%s, batch %d: %s Another is started.", self._id, request.batch, self._fate)
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            if connection is not None:
                connection.close()
        raise SlotError(
            f"{self._id}, batch {request.batch}: its process ended {_TRIES} times before it was ready. The last "
            f"one: {self._fate}. Nothing is lost."
        )

    def _open(self, connection: WatchedConnection, request: SlotRequest, program: Callable[[], bytes]) -> bool:
        """Say what is to be done, until the slot says GO; False if it has to be another slot."""
        try:
            connection.sendall(Hello.of(self._id.token, request).to_bytes())
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionEndedError(str(error)) from None
        type_, payload = receive_frame(connection)
        if type_ is FrameType.SUPERSEDED:
            return False
        if type_ is FrameType.WELCOME:
            if self._pid in _spawned:
                _spawned[self._pid].close()  # it prints to the log from here on
            send_frame(connection, FrameType.REQUEST, request.to_bytes())
            type_, payload = receive_frame(connection)
        if type_ is FrameType.NEED_PROGRAM:
            sent = SentProgram(tuple(sys.path), program())
            send_frame(connection, FrameType.PROGRAM, sent.to_bytes())
            type_, payload = receive_frame(connection)
        if type_ is FrameType.FAILURE:
            raise raised(SlotFailure.from_bytes(payload))
        if type_ is not FrameType.GO:
            raise ConnectionEndedError(f"it said {type_.name} where GO was expected")
        return True

    def _connected(self, request: SlotRequest) -> WatchedConnection:
        """A connection to the slot, by the first of its names that nobody else holds."""
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
            f"{self._id}: all {_NAMES} names of its socket are held by others, the last by {holder}. They can be "
            f"seen in /proc/net/unix (@emberstate-…): have whoever holds them stop it."
        )

    def _connected_at(self, address: bytes, request: SlotRequest) -> socket.socket | None:
        """A connection to whoever has this name, the slot being started if nobody has; None if one has it and does not
        listen."""
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
                busy = isinstance(error, BlockingIOError)  # more wait for it than it can count
            except BaseException:
                connection.close()
                raise
            if started is not None and started.ended:
                raise ConnectionEndedError("it ended before it listened")
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
        """How the slot's process ended, if that can be known."""
        spawned = _spawned.get(self._pid)
        if spawned is None:
            who = f"process {self._pid}" if self._pid else "a process"
            return f"{who} that another worker has started; see the executor's stderr log"
        return spawned.fate(_FATE_SECONDS)

    def _end_stalled(self, connection: WatchedConnection, stalled: StalledError) -> str:
        """End a slot that does not go on; what to say of it."""
        condition = connection.peer.condition()
        ended = "and was ended" if connection.peer.kill() else "and could not be ended from here: end it by kill -9"
        return (
            f"its process ({condition}) made no progress for {self._id.stall_seconds:g} s {ended}. What it was "
            f"doing: {stalled}."
        )


def _forget_ended() -> None:
    """Let those that have ended be zombies no longer."""
    for pid, spawned in list(_spawned.items()):
        if spawned.ended:
            spawned.close()
            del _spawned[pid]
