"""`SlotRunner`: serves requests, one after the other, on the slot's `OperatorSlot`.

    request → (program) → start → GO → rows, batch by batch → END → prepare → answer

If anything fails before the answer, the runner rolls the transaction back and tells the peer, if it still listens. A
stream without END is one whose peer died. Every answer carries the slot's statistics, numbers by name.

Thread safety: the owner's thread; `progress` is for any thread.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.errors import CorruptionError, InstallationError, InvariantError
from emberstate.runtime.operator.slot import OperatorSlot
from emberstate.runtime.rows.keyed_input import without_null_keys
from emberstate.spark.slot.collector import SlotCollector
from emberstate.spark.slot.connection import PreEmptedError, SlotConnection
from emberstate.spark.slot.failure import failure_of, users_traceback
from emberstate.spark.slot.frames import ConnectionEndedError, FrameType
from emberstate.spark.slot.memory_limit import memory_limit
from emberstate.spark.slot.messages import SentProgram, SlotAnswer, SlotEnd, SlotProgram, SlotRequest, program_digest

_log = logging.getLogger("emberstate.spark")
_PAGE: Final = os.sysconf("SC_PAGESIZE")


class SlotRunner:
    """Runs a program and owns its state."""

    def __init__(self, name: str) -> None:
        """`name` is the name of the slot in messages."""
        self._name = name
        self._digest = ""
        self._program: SlotProgram | None = None
        self._slot: OperatorSlot | None = None
        self._collector = SlotCollector()
        self._phase = "waiting for a request"

    @property
    def idle_seconds(self) -> float | None:
        """How long the program lets the slot be idle; None before there is a program."""
        return None if self._program is None else self._program.idle_seconds

    def progress(self) -> str:
        """What it does and how far it is: a text that changes when there is progress, and only then. For any thread."""
        slot = self._slot
        return self._phase if slot is None else f"{self._phase}; {slot.progress()}"

    def serve(self, connection: SlotConnection) -> None:
        """Serve one request; never raises."""
        batch = connection.hello.batch
        where = f"{self._name}, batch {batch}"
        try:
            self._serve(connection)
        except PreEmptedError as error:
            self._undo(f"batch {batch}: {error}")
            connection.fail(failure_of(error.reason, where))
        except ConnectionEndedError as error:
            self._undo(f"batch {batch}: the task is gone ({error})")
        except BaseException as error:
            # Also SystemExit of the user's sys.exit(): only the server ends a slot.
            self._undo(f"batch {batch}: {type(error).__name__}: {error!s:.200}")
            connection.fail(failure_of(error, where))
        finally:
            connection.close()
            self._collector.after_transaction()
            self._phase = "waiting for a request"

    def when_idle(self) -> None:
        """Collect garbage in a pause."""
        self._collector.when_idle()

    def close(self) -> None:
        """Drop all state, and the local files with it."""
        self._drop()

    # -- a request ------------------------------------------------------------------------------------------

    def _serve(self, connection: SlotConnection) -> None:
        begun = time.perf_counter_ns()
        request = SlotRequest.from_bytes(connection.receive(FrameType.REQUEST))
        if request.order != connection.hello.order:
            raise ConnectionEndedError("the request is not that of its hello")
        where = f"batch {request.batch}: "
        self._phase = where + "loading the program"
        self._reach(request, connection)
        connection.check()
        slot, program = self._slot, self._program
        assert slot is not None and program is not None
        side = None if request.broadcast_task is None else SlotTask.from_bytes(request.broadcast_task)
        self._phase = where + "reading its state, and firing timers that are due"
        how = slot.start(SlotTask.from_bytes(request.task), side)
        if how == "restored":
            self._collector.after_restore()
            _log.info("Restored for batch %d in %d ms.", request.batch, slot.micros["start"] // 1000)
        elif how == "rolled back":
            _log.info("Rolled back an uncommitted attempt, for batch %d.", request.batch)
        self._phase = where + "handling rows"
        connection.send(FrameType.GO)
        counts, micros = self._process(request, connection)
        self._phase = where + "writing what changed"
        _, acknowledgements = slot.prepare(request.broadcast_attempt)
        keyed = acknowledgements[0]
        acknowledgements[0] = msgspec.structs.replace(keyed, counts={**keyed.counts, **counts})
        answer = SlotAnswer(
            acknowledgements=tuple(one.to_bytes() for one in acknowledgements),
            start=how,
            micros={
                **slot.micros,
                **micros,
                "gc": self._collector.take_micros(),
                "total": _micros(begun),
            },
            statistics=slot_statistics(slot),
            began=time.time_ns() // 1000 - _micros(begun),
        )
        connection.send(FrameType.ANSWER, answer.to_bytes())

    def _process(self, request: SlotRequest, connection: SlotConnection) -> tuple[dict[str, int], dict[str, int]]:
        """Run the rows to their end; returns counts and times."""
        assert self._slot is not None and self._program is not None
        operator, inputs = self._slot.operator, self._program.stage.inputs
        dropping = self._program.drop_null_keys
        user = transport = dropped = batches = rows = 0
        mark = time.perf_counter_ns()
        if request.broadcast_rows:
            for batch in pa.ipc.open_stream(request.broadcast_rows):
                operator.process_broadcast_batch(batch)
                connection.check()
        now = time.perf_counter_ns()
        user, mark = now - mark, now
        for batch in connection.batches():
            now = time.perf_counter_ns()
            transport, mark = transport + now - mark, now
            batches, rows = batches + 1, rows + batch.num_rows
            if dropping:
                batch, nulls = without_null_keys(batch, inputs)
                dropped += nulls
            operator.process_batch(batch)
            now = time.perf_counter_ns()
            user, mark = user + now - mark, now
        end = SlotEnd.from_bytes(connection.receive(FrameType.END))
        if end != SlotEnd(batches, rows):
            raise InvariantError(
                f"rows were lost on the socket: expected {end}, got {batches} batches with {rows} rows",
                batch=request.batch,
            )
        now = time.perf_counter_ns()
        transport, mark = transport + now - mark, now
        if request.end_watermark is not None:
            self._phase = f"batch {request.batch}: firing timers after the rows"
            operator.advance_watermark(request.end_watermark)
        user += time.perf_counter_ns() - mark
        connection.check()
        counts = {"null_keys": dropped} if dropping else {}
        return counts, {"transport": transport // 1000, "user": user // 1000}

    def _undo(self, why: str) -> None:
        """Roll back to before the request; if that fails, drop all state."""
        _log.warning("Rolled back: %s", why.partition("\n")[0])
        self._phase = "rolling back"
        if self._slot is None:
            return
        try:
            self._slot.roll_back()
        except Exception:
            _log.exception("Rolling back failed: the state is dropped, and restored from the checkpoint next time.")
            self._drop()

    # -- the program ----------------------------------------------------------------------------------------

    def _reach(self, request: SlotRequest, connection: SlotConnection) -> None:
        """Load the request's program, unless it is loaded."""
        if self._digest != request.program:
            connection.send(FrameType.NEED_PROGRAM)
            sent = SentProgram.from_bytes(connection.receive(FrameType.PROGRAM))
            if program_digest(sent.content) != request.program:
                raise CorruptionError(
                    "the program does not have the digest that its request names: it was damaged on the way",
                    batch=request.batch,
                )
            self._drop()
            self._digest = ""
            self._program = self._load(sent)
            self._digest = request.program
        if self._slot is None:
            assert self._program is not None
            stage = self._program.stage
            self._slot = OperatorSlot(
                stage.make_operator,
                self._program.state_backend,
                stage.key_schema,
                max_parallelism=stage.max_parallelism,
                policy=self._program.policy,
            )

    def _load(self, sent: SentProgram) -> SlotProgram:
        known = set(sys.path)
        sys.path += [entry for entry in sent.path if entry not in known]
        try:
            program = pickle.loads(sent.content)
        except ModuleNotFoundError as error:
            raise InstallationError(
                f"module {error.name!r}, which the program needs, cannot be imported in the slot's process. Ship it "
                f"with spark-submit --py-files or sparkContext.addPyFile, or install it on all executors.",
                found=error.name,
            ) from error
        except Exception as error:
            raise InstallationError(
                f"the program cannot be loaded in the slot's process: {type(error).__name__}: {error}. Do driver and "
                f"executors have the same versions of all modules? Ship yours with spark-submit --py-files or "
                f"sparkContext.addPyFile.\n{users_traceback(error)}",
                found=type(error).__name__,
            ) from error
        if not isinstance(program, SlotProgram):
            found = type(program).__qualname__
            what = f"the program failed to load: expected a SlotProgram, got {found}. Use one version of emberstate."
            raise InstallationError(what, expected=SlotProgram.__name__, found=found)
        return program

    def _drop(self) -> None:
        if self._slot is not None:
            slot, self._slot = self._slot, None
            slot.close()


def _micros(since: int) -> int:
    return (time.perf_counter_ns() - since) // 1000


def slot_statistics(slot: OperatorSlot) -> dict[str, int]:
    """Numbers of the slot, its operator and its backend, named `part/name` or `part/its own name/name`."""
    found = {
        "rss_bytes": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE,
        "memory_limit_bytes": memory_limit(),
    }
    _add(found, "", slot.statistics())
    _add(found, "", slot.operator.statistics())
    return found


def _add(found: dict[str, int], prefix: str, value: Any) -> None:
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, int):
            found[prefix + field.name] = part
        elif dataclasses.is_dataclass(part):
            _add(found, f"{prefix}{field.name}/", part)
        elif isinstance(part, tuple):
            for one in part:
                if dataclasses.is_dataclass(one) and hasattr(one, "name"):
                    _add(found, f"{prefix}{field.name}/{one.name}/", one)
        elif isinstance(part, dict):
            found.update({f"{prefix}{field.name}/{name}": n for name, n in part.items() if isinstance(n, int)})
