"""`check_sink`: what every sink must hold, checked on a real target, without Spark.

Deliveries are made here: their parts are stored files, as those of a checkpoint, and "tasks" run in this process. A
driver that dies is a process that kills itself, at each of some points where the sink touches files or sockets. A
driver that is paused is one that waits before or after a task, while another driver delivers.

Thread safety: none.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.manifest.layout import new_id, output_path
from emberstate.checkpoint.manifest.open_files import store_file
from emberstate.errors import SinkError
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.outputs import MAIN, write_output
from emberstate.runtime.rows.parquet_outputs import fits_parquet, write_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.sinks.interface import Delivery, Origin, Sink, Start
from emberstate.sinks.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
Rows = Sequence[tuple[Any, ...]]

_ROWS: Final = RowType.of("key string, value bigint")
#: What a sink does when it touches the world, by the first part of the name that Python gives it.
_EVENTS: Final = ("open", "os", "shutil", "socket", "sqlite3", "ctypes")


class LocalDelivery(Delivery):
    """A batch whose parts are stored below a directory; tasks run here. `frame` needs a session."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        origin: Origin,
        batch: int,
        row_type: RowType,
        parts: Sequence[Rows],
        *,
        spark: SparkSession | None = None,
        around: Callable[[str, int], None] = lambda when, part: None,
    ) -> None:
        """Store the rows of every part; `around` is called "before" and "after" the task of each, with its number."""
        backend = FsStateBackend(directory)
        storage = backend.open_storage()
        made = []
        for number, rows in enumerate(parts):
            batches = [batch_of(list(rows), row_type)]
            parquet = fits_parquet(row_type) and number % 2 == 0  # both ways in which parts are stored
            content = write_parquet(batches, row_type) if parquet else write_output(batches, row_type)
            place = store_file(storage, output_path(1, new_id()), [content])
            stored = StoredOutput(place, "parquet" if parquet else "arrow")
            made.append(Part(number, len(rows), row_type, stored, backend))
        super().__init__(origin, batch, row_type, made)
        self._spark = spark
        self._around = around

    def frame(self) -> DataFrame:
        assert self._spark is not None, "give LocalDelivery a session: spark=…"
        batches = [batch for part in self.parts for batch in part.batches()]
        rows = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
        return self._spark.createDataFrame(rows, self.row_type.schema)

    def in_tasks(self, function: Callable[[Part], R]) -> list[R]:
        answers = []
        for part in self.parts:
            self._around("before", part.number)
            answers.append(function(part))
            self._around("after", part.number)
        return answers


def check_sink(
    make: Callable[[str], Sink],
    read: Callable[[str], Rows],
    directory: str | os.PathLike[str],
    *,
    kills: int = 6,
    atomic: Literal["batch", "part"] = "batch",
    spark: SparkSession | None = None,
) -> None:
    """Raise `AssertionError` if a sink breaks what it promises.

    Args:
        make: Returns a new sink over the target of a name, as a new driver would; the target need not exist. A function
            that another process can import, or a `functools.partial` of one.
        read: All rows of the target of a name, as tuples of (key string, value bigint), in any order.
        directory: Where stored outputs go; it should be empty.
        kills: The number of points at which a process is killed.
        atomic: What a failure must leave whole: a batch, or, with "part", the rows of each slot.
        spark: The session, for sinks that use `delivery.frame()`, or whose check needs one.
    """
    suite = _Suite(make, read, Path(directory), spark, atomic)
    suite.batches_come_once()
    suite.a_new_query_is_not_skipped()
    suite.a_task_that_fails_is_run_again()
    suite.a_paused_driver_destroys_nothing()
    if kills:
        suite.killed_drivers_lose_nothing(kills)


class _Failure(Exception):
    """What a task raises in the suite."""


class _Suite:
    """The checks, each on a target of its own."""

    def __init__(
        self,
        make: Callable[[str], Sink],
        read: Callable[[str], Rows],
        directory: Path,
        spark: SparkSession | None,
        atomic: str,
    ) -> None:
        self._make = make
        self._read = read
        self._directory = directory
        self._spark = spark
        self._atomic = atomic

    def batches_come_once(self) -> None:
        sink, origin = self._start("once"), _origin("once")
        for batch in (0, 1, 2):
            sink.deliver(self._delivery(origin, batch))
            sink.deliver(self._delivery(origin, batch))
            self._start("once", origin).deliver(self._delivery(origin, batch))
        sink.deliver(self._delivery(origin, 3, parts=0))
        self._expect("once", [0, 1, 2], sink, "batches were delivered, each three times, and one without rows")
        assert repr(sink) == repr(self._make("once")), "two sinks of one target are written differently"

    def a_new_query_is_not_skipped(self) -> None:
        sink = self._start("queries")
        sink.deliver(self._delivery(_origin("first"), 0))
        other = self._make("queries")
        try:
            other.deliver(self._delivery(_origin("second"), 0, first=100))
        except SinkError:
            self._expect("queries", [0], sink, "a second query was rejected")
        else:
            self._expect("queries", [0, 100], sink, "a second query delivered its batch 0")

    def a_task_that_fails_is_run_again(self) -> None:
        for number, point in enumerate([("before", 0), ("after", 0), ("before", 1), ("after", 1)]):
            name = f"failed{number}"
            sink, origin = self._start(name), _origin(name)
            sink.deliver(self._delivery(origin, 0))

            def fail(when: str, part: int, at: tuple[str, int] = point) -> None:
                if (when, part) == at:
                    raise _Failure

            with contextlib.suppress(_Failure):
                sink.deliver(self._delivery(origin, 1, around=fail))
            self._expect_at_most(name, [0, 1], sink)
            sink.deliver(self._delivery(origin, 1))  # the driver lived
            self._expect(name, [0, 1], sink, f"the driver failed {point[0]} task {point[1]} and delivered again")

    def a_paused_driver_destroys_nothing(self) -> None:
        for number, point in enumerate([("before", 0), ("after", 1)]):
            name = f"paused{number}"
            sink, origin = self._start(name), _origin(name)
            sink.deliver(self._delivery(origin, 0))

            reached: list[bool] = []

            def others(
                when: str,
                part: int,
                at: tuple[str, int] = point,
                name: str = name,
                origin: Origin = origin,
                reached: list[bool] = reached,
            ) -> None:
                if (when, part) == at and not reached:
                    reached.append(True)
                    second = self._start(name, origin)
                    for batch in (1, 2, 3):
                        second.deliver(self._delivery(origin, batch))

            with contextlib.suppress(Exception):  # it may find out, and fail
                sink.deliver(self._delivery(origin, 1, around=others))
            if not reached:  # a sink without tasks: the second driver comes after it, and it wakes up again
                others(*point)
                sink.deliver(self._delivery(origin, 1))
            what = f"a driver was paused {point[0]} task {point[1]}, while another delivered its batch and two more"
            self._expect(name, [0, 1, 2, 3], sink, what)

    def killed_drivers_lose_nothing(self, kills: int) -> None:
        name, origin = "killed", _origin("killed")
        self._start(name).deliver(self._delivery(origin, 0))
        points = self._run(name, origin, 1, 0)
        assert points > 0, "the sink touched neither files nor sockets"
        batch = 1
        for kill in range(kills):
            batch += 1
            self._run(name, origin, batch, 1 + kill * points // kills)
            self._expect_at_most(name, range(batch + 1), self._make(name))
            sink = self._start(name, origin)
            sink.deliver(self._delivery(origin, batch))
            self._expect(name, range(batch + 1), sink, f"a driver was killed at point {1 + kill * points // kills}")

    def _run(self, name: str, origin: Origin, batch: int, point: int) -> int:
        """Deliver in another process, which kills itself at that point, if it is not 0; returns how many there are."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        arguments = (self._make, name, str(self._directory), origin, batch, point, theirs)
        process = context.Process(target=_deliver_and_die, args=arguments)
        process.start()
        theirs.close()
        try:
            count = int(ours.recv())
        except EOFError:
            count = 0
        process.join()
        expected = (0,) if point == 0 else (0, -signal.SIGKILL)
        assert process.exitcode in expected, f"the driver ended with {process.exitcode}"
        return count

    def _start(self, name: str, before: Origin | None = None) -> Sink:
        sink = self._make(name)
        spark: Any = self._spark
        sink.check(Start(spark, "conformance", "totals", MAIN, _ROWS, before))
        return sink

    def _delivery(self, origin: Origin, batch: int, **options: Any) -> LocalDelivery:
        return _delivery(self._directory, origin, batch, spark=self._spark, **options)

    def _expect(self, name: str, batches: Sequence[int], sink: Sink, what: str) -> None:
        expected = Counter(row for batch in batches for row in _rows(batch))
        found = Counter(tuple(row) for row in self._read(name))
        missing, more = expected - found, found - expected
        if not sink.promise.startswith("exactly-once"):
            more = Counter({row: count for row, count in more.items() if row not in expected})
        assert not missing and not more, (
            f"{what}: {missing.total()} rows are missing ({list(missing)[:3]}), {more.total()} are too many "
            f"({list(more)[:3]})"
        )

    def _expect_at_most(self, name: str, batches: Sequence[int], sink: Sink) -> None:
        """What a failure leaves is whole, each batch or part at most once."""
        if sink.promise.startswith("exactly-once"):
            found = Counter(tuple(row) for row in self._read(name))
            wholes = [_rows(batch) for batch in batches]
            if self._atomic == "part":
                wholes = [rows[first : first + 3] for rows in wholes for first in (0, 3)]
            wrong = [rows for rows in wholes if 0 < sum(found[row] for row in rows) != len(rows)]
            assert not wrong, f"a failure left some rows of {wrong}"


def _rows(batch: int) -> list[tuple[str, int]]:
    """The rows of a batch, which no other has."""
    return [(f"k{part}", 1000 * batch + 10 * part + n) for part in range(2) for n in range(3)]


def _origin(query: str) -> Origin:
    return Origin(uuid.uuid5(uuid.NAMESPACE_OID, query).hex, "conformance", query, "totals", MAIN)


def _delivery(
    directory: Path, origin: Origin, batch: int, *, parts: int = 2, first: int = 0, **options: Any
) -> LocalDelivery:
    rows = _rows(first + batch)
    return LocalDelivery(
        directory, origin, batch, _ROWS, [rows[3 * part : 3 * part + 3] for part in range(parts)], **options
    )


def _deliver_and_die(
    make: Callable[[str], Sink], name: str, directory: str, origin: Origin, batch: int, point: int, answer: Any
) -> None:
    """Deliver a batch, and count the points at which the sink touches the world; die at one of them."""
    sink, delivery = make(name), _delivery(Path(directory), origin, batch)
    count, counting = 0, True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if counting and event.partition(".")[0] in _EVENTS:
            count += 1
            if count == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    sink.deliver(delivery)
    counting = False
    answer.send(count)
