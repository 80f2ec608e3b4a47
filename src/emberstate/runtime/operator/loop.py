# cython: boundscheck=False, wraparound=False
"""The loop over rows: sets key and time, calls the function, collects outputs, and fires timers that became due.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import GeneratorType
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import RowTypeError
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.domain_timers import DomainTimers
from emberstate.runtime.rows.records import is_record
from emberstate.runtime.rows.times import MIN_TIME
from emberstate.state.key_context import KeyContext

if not cython.compiled:  # compiled, these are C functions of .pxd files
    from emberstate.runtime.rows.row_batches import new_row

    def take_all(generator: Any, rows: list[Any]) -> Any:
        """Append what a generator yields to `rows`; return what it returns."""
        try:
            while True:
                rows.append(next(generator))
        except StopIteration as stop:
            return stop.value


def collect(result: Any, rows: list[Any]) -> None:
    """Append the output rows of a function's result, which is not None."""
    if type(result) is GeneratorType:
        returned = take_all(result, rows)
        if returned is not None:
            raise RowTypeError(f"a generator returned {returned!r:.100}, which is lost: yield it")
    elif isinstance(result, (tuple, Mapping)):
        rows.append(result)
    elif isinstance(result, (list, Iterator)):
        rows.extend(result)
    elif is_record(type(result)):
        rows.append(result)
    else:
        raise RowTypeError(
            f"a function yields rows, or returns a list of them, one tuple, dict or dataclass, or None; it returned "
            f"{type(result).__name__} ({result!r:.100})"
        )


class ElementLoop:
    """The loop and its settings, which the operator changes as time advances."""

    __slots__ = (
        "advance",
        "context",
        "event",
        "fire_due",
        "first_seen",
        "groups",
        "in_step",
        "key_context",
        "late",
        "methods",
        "note",
        "of_key",
        "out_of_orderness",
        "outputs",
        "position",
        "processing",
        "processing_time",
        "second_lag",
        "second_seen",
        "times",
        "user_code",
        "watermark",
    )

    context: FunctionContext
    key_context: KeyContext
    event: DomainTimers
    processing: DomainTimers
    methods: tuple[Callable[[Any, Any], Any], ...]
    outputs: list[Any]
    note: Callable[[], None] | None
    of_key: list[Any]
    watermark: int
    processing_time: int
    out_of_orderness: int
    second_lag: int
    first_seen: int
    second_seen: int
    in_step: bool
    groups: Any
    times: Any
    position: int
    user_code: bool
    advance: Callable[[int], None]
    fire_due: Callable[[], None]
    late: Callable[[Any, Any, Any, int, int], None]

    def __init__(
        self,
        context: FunctionContext,
        key_context: KeyContext,
        event: DomainTimers,
        processing: DomainTimers,
        methods: tuple[Callable[[Any, Any], Any], ...],
        out_of_orderness: tuple[int, ...],
        advance: Callable[[int], None],
        fire_due: Callable[[], None],
        late: Callable[[Any, Any, Any, int, int], None],
        in_step: bool,
    ) -> None:
        """`in_step`: a row of one input shows that the other has got as far."""
        self.context = context
        self.key_context = key_context
        self.event = event
        self.processing = processing
        self.methods = methods
        self.out_of_orderness = out_of_orderness[0]
        self.second_lag = out_of_orderness[len(out_of_orderness) - 1]  # compiled, -1 is no index
        self.first_seen = self.second_seen = MIN_TIME
        self.in_step = in_step
        self.advance = advance
        self.fire_due = fire_due
        self.late = late
        self.outputs = []
        self.note = None
        self.of_key = []
        self.groups = None
        self.times = None
        self.watermark = 0
        self.processing_time = 0
        self.position = 0
        self.user_code = False

    def begin_inputs(self) -> None:
        """Begin a transaction, in which no row has been seen."""
        self.first_seen = self.second_seen = MIN_TIME

    def reach(self, watermark: int) -> None:
        """Make rows before `watermark` late, of every input."""
        self.watermark = watermark
        self.first_seen = max(self.first_seen, watermark)
        self.second_seen = max(self.second_seen, watermark)

    def run(
        self,
        made: list[Any] | None,
        row_class: Any,
        columns: list[list[Any]],
        keys: list[Any],
        groups: memoryview,
        times: memoryview | None,
        inputs: list[int] | None,
    ) -> None:
        """Handle rows, made or as columns, each with its canonical key, key group, event time and number of its input.

        If it raises, `position` is the row at which it did, and `user_code` whether user code raised.
        """
        self.groups = groups
        self.times = times
        try:
            self.run_all(made, row_class, columns, keys, times is not None, inputs)
        finally:
            self.groups = None
            self.times = None

    def run_by_key(
        self,
        rows: list[Any],
        keys: list[Any],
        groups: memoryview,
        times: memoryview | None,
        method: Callable[[Any, list[Any], Any], Any],
    ) -> None:
        """Handle the rows of each key together, keys in the order in which they first come.

        If it raises while `user_code`, `position` is the first row of the key at hand, and `of_key` its rows.
        """
        self.groups = groups
        self.times = times
        try:
            self.run_keys(rows, keys, times is not None, method)
        finally:
            self.groups = None
            self.times = None

    def run_keys(
        self, rows: list[Any], keys: list[Any], timed: cython.bint, method: Callable[[Any, list[Any], Any], Any]
    ) -> None:
        """Do it, with key groups and times in place."""
        i: cython.Py_ssize_t
        number: cython.Py_ssize_t = 0
        by_key: dict[Any, list[Any]] = {}
        firsts: list[int] = []
        lasts: dict[Any, int] = {}
        of_key: Any
        context: FunctionContext = self.context
        key_context: KeyContext = self.key_context
        event: DomainTimers = self.event
        processing: DomainTimers = self.processing
        note = self.note
        for i in range(len(keys)):
            key = keys[i]
            if timed:
                if self.times[i] < self.watermark:
                    self.position = i
                    self.late(rows[i], key, self.times[i], self.groups[i], 0)
                    continue
                lasts[key] = i
            of_key = by_key.get(key)
            if of_key is None:
                by_key[key] = [rows[i]]
                firsts.append(i)
            else:
                of_key.append(rows[i])
        for key, of_key in by_key.items():
            self.position = firsts[number]
            number += 1  # noqa: SIM113 - compiled, a C number
            self.of_key = of_key
            key_context.set_current_key_and_group(key, self.groups[self.position])
            context.timed = timed
            if timed:
                i = lasts[key]
                context.time = self.times[i]
            self.user_code = True
            result = method(key, of_key, context)
            if result is not None:
                collect(result, self.outputs)
            self.user_code = False
            if note is not None:
                note()
            if event.next_time <= context.event_now or processing.next_time <= self.processing_time:
                self.fire_due()
        self.of_key = []

    def run_all(
        self,
        made: list[Any] | None,
        row_class: Any,
        columns: list[list[Any]],
        keys: list[Any],
        timed: cython.bint,
        inputs: list[int] | None,
    ) -> None:
        """Do it, with key groups and times in place."""
        i: cython.Py_ssize_t
        group: cython.Py_ssize_t
        time: cython.longlong
        reached: cython.longlong
        context: FunctionContext = self.context
        key_context: KeyContext = self.key_context
        event: DomainTimers = self.event
        processing: DomainTimers = self.processing
        note = self.note
        method = self.methods[0]
        context.timed = timed
        for i in range(len(keys)):
            self.position = i
            row = new_row(row_class, columns, i) if made is None else made[i]
            group = self.groups[i]
            if timed:
                time = self.times[i]
                if time < self.watermark:
                    self.late(row, keys[i], time, group, 0 if inputs is None else inputs[i])
                    continue
                if inputs is None:
                    reached = time - self.out_of_orderness
                else:  # the least of both, each as far as its rows have come here
                    if self.in_step or inputs[i] == 0:
                        self.first_seen = max(self.first_seen, time - self.out_of_orderness)
                    if self.in_step or inputs[i] == 1:
                        self.second_seen = max(self.second_seen, time - self.second_lag)
                    reached = min(self.first_seen, self.second_seen)
                if reached > context.event_now:
                    if reached >= event.next_time:
                        self.advance(reached)
                    else:
                        context.move_watermark(reached)
                context.time = time
                context.timed = True
            if inputs is not None:
                method = self.methods[inputs[i]]
            key_context.set_current_key_and_group(keys[i], group)
            self.user_code = True
            result = method(row, context)
            if result is not None:
                collect(result, self.outputs)
            self.user_code = False
            if note is not None:
                note()
            if event.next_time <= context.event_now or processing.next_time <= self.processing_time:
                self.fire_due()
                context.timed = False
