"""`ElementRunner`: calls the function for rows and timers, one transaction after another.

It owns what a function uses while it runs: context, timers, the loop, outputs and counts. The operator decides when
transactions begin, end and fail.

Thread safety: the operator's thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import EmberstateError, RowTypeError, StateDeclarationError, UserFunctionError
from emberstate.runtime.functions.broadcast import BroadcastSide
from emberstate.runtime.functions.columnar import ColumnarFunction
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_columns import DeclaredColumns
from emberstate.runtime.functions.domain_timers import KeyedTimer, TimeDomain
from emberstate.runtime.functions.finishing import FinishingFunction
from emberstate.runtime.functions.host import FunctionHost
from emberstate.runtime.functions.timer_service import TimerService
from emberstate.runtime.operator.held_rows import HeldRows, LateRow
from emberstate.runtime.operator.loop import ElementLoop, collect
from emberstate.runtime.rows.emissions import Emissions
from emberstate.runtime.rows.keyed_input import InputRows, KeyedInput, rows_stood_for
from emberstate.runtime.rows.outputs import MAIN, OutputRows, TransactionResult
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.times import MAX_TIME, MIN_TIME
from emberstate.state.keyed_state_backend import KeyedStateBackend

if TYPE_CHECKING:
    import pyarrow as pa

    from emberstate.runtime.operator.arrow_calls import ArrowCalls

#: The names of the two timer queues, which are stored.
TIMER_QUEUES: Final = {TimeDomain.EVENT: "event-time timers", TimeDomain.PROCESSING: "processing-time timers"}
#: How often one timer may fire in a row before it is rejected as one that registers itself for ever.
MAX_REPEATS: Final = 1_000


class ElementRunner:
    """Runs one copy of a function at a time."""

    def __init__(
        self,
        host: FunctionHost,
        backend: KeyedStateBackend,
        broadcast: BroadcastSide | None,
        row_types: Mapping[str, RowType | None],
        late_output: str | None,
        out_of_orderness: tuple[int, ...],
        *,
        has_event_time: bool = True,
        followed: bool = False,
        held: HeldRows | None = None,
        in_step: bool = False,
    ) -> None:
        self._host = host
        self._backend = backend
        self._broadcast = broadcast
        self._row_types = row_types
        self._late_output = late_output
        self._lag = out_of_orderness[0]
        self._followed = followed
        self._held = held
        self._emissions: Emissions | None
        self._watermark = MIN_TIME
        #: Counts since it was made, failed attempts included.
        self.rows = self.late_rows = self.timers_fired = self.broadcast_rows = 0
        self._keys: list[Any] = []  # of the current rows
        self._data: InputRows | None = None  # the current rows
        self._last_fired: KeyedTimer | None
        self._repeats = 0
        self.timers = TimerService(
            lambda domain: backend.get_timer_queue(TIMER_QUEUES[domain], namespace_type=host.timer_namespace_type),
            _refusals(host, has_event_time),
        )
        self.context = FunctionContext(host.operator_name, backend, self.timers, self._emit, broadcast)
        self.context.hands_batches = held is None and not followed
        self.context.lag = out_of_orderness[0]
        self._loop = ElementLoop(
            self.context,
            backend.context,
            self.timers.event,
            self.timers.processing,
            (),
            out_of_orderness,
            self.advance,
            self.fire_due,
            self._handle_late_row,
            in_step,
        )
        self._handles = self._declared_handles()
        self._arrow = self._arrow_calls() if host.by_arrow else None
        self.reset()
        self._renew()

    # -- the function ---------------------------------------------------------------------------------------

    def renew(self) -> None:
        """Replace the function by a new copy."""
        self.dispose()
        self._renew()

    def dispose(self) -> None:
        """Close the function."""
        self._host.dispose(self._function)

    def _renew(self) -> None:
        self._function = self._host.make(self.context, self._handles)
        self._resumed = False
        self._loop.methods = tuple(getattr(self._function, name) for name in self._host.elements)

    def _declared_handles(self) -> dict[str, Any]:
        """Return the handles of the states that the class declares, by attribute."""
        handles: dict[str, Any] = {}
        if self._host.by_arrow:
            from emberstate.runtime.functions.column_state import column_state_of
        for attribute, state in type(self._host.declared())._declared.items():
            declared = state.declaration
            if declared.broadcast:
                handles[attribute] = self.context.get_broadcast_state(declared.descriptor)  # type: ignore[arg-type]
            elif isinstance(state, DeclaredColumns):
                handles[attribute] = column_state_of(declared.descriptor, self.context)  # type: ignore[arg-type]
            else:
                handles[attribute] = self.context.get_partitioned_state(declared.descriptor)
        return handles

    def _arrow_calls(self) -> ArrowCalls:
        from emberstate.runtime.operator.arrow_calls import ArrowCalls

        return ArrowCalls(list(self._handles.values()), self._backend.context.key_schema, self._row_types[MAIN])

    # -- a transaction --------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Clear the outputs and counts of the last transaction."""
        self.outputs = {
            name: OutputRows(f"operator {self._host.operator_name!r}, output {name!r} of {self._host.label}", row_type)
            for name, row_type in self._row_types.items()
        }
        main = self.outputs[MAIN]
        if self._followed:
            main.emissions = Emissions(main.pending, self.context, self._backend.context)
        self._emissions = main.emissions
        self._loop.outputs = main.pending
        self._loop.note = None if main.emissions is None else main.emissions.note
        self._loop.user_code = False
        self.context.forget()
        self._rows = self._late_rows = self._late_dropped = self._fired = 0
        self._max_times: list[int | None] = [None] * len(self._host.elements)
        self._last_fired = None

    def begin(self, processing_time: int, watermark: int) -> None:
        """Start a transaction, and fire the timers that are due."""
        self.reset()
        self._loop.begin_inputs()
        if self._broadcast is not None:
            self._broadcast.enter()
        self.timers.event.refresh()
        self.timers.processing.refresh()
        # Start before all time: a restored slot does not know how far its rows had got.
        self.context.move_watermark(MIN_TIME)
        self._set_processing_time(processing_time)
        if not self._resumed:
            self._resumed = True
            if isinstance(self._function, ColumnarFunction):
                self._function.resume(self.context)
        self.set_watermark(watermark)

    def finish(self) -> None:
        """Let the function emit what it left for the end of the transaction, key by key."""
        function = self._function
        if isinstance(function, ColumnarFunction) and function.takes_batches:
            with self._column_errors("finish_columns"):
                for batch in function.finish_columns():
                    self.outputs[MAIN].add_batch(batch)
        if isinstance(function, FinishingFunction):
            self.context.set_timestamp(None)
            for key in function.unfinished():
                self._backend.context.set_current_key(key)
                self._call("finish_key", function.finish_key, key, [("key", key)])

    def result(self) -> TransactionResult:
        """Return the result of the transaction."""
        return TransactionResult(
            outputs=self.outputs,
            counters=self.context.counters,
            rows=self._rows,
            late_rows=self._late_rows,
            late_rows_dropped=self._late_dropped,
            timers_fired=self._fired,
            max_event_time=max((time for time in self._max_times if time is not None), default=None),
            input_times=tuple(self._max_times) if self._host.two_inputs else (),
        )

    def progress(self) -> str:
        """Return counts since it was made, and the current row. Any thread."""
        keys, at = self._keys, self._loop.position
        so_far = (
            f"{self.rows} rows, {self.broadcast_rows} broadcast rows, {self.late_rows} late rows and "
            f"{self.timers_fired} timers so far"
        )
        return f"{so_far}, at row {at + 1} of {len(keys)}, key {keys[at]!r:.200}" if at < len(keys) else so_far

    def check_outputs(self) -> None:
        """Reject emitted rows of the wrong type."""
        for output in self.outputs.values():
            output.check()

    def seal_outputs(self) -> None:
        """Turn the rows of outputs with a schema into record batches."""
        for output in self.outputs.values():
            if output.row_type is not None:
                output.seal()

    def _emit(self, name: str, row: Any) -> None:
        output = self.outputs.get(name)
        if output is None:
            raise StateDeclarationError(
                f"operator {self._host.operator_name!r} has no output {name!r}, it has {sorted(self.outputs)}: "
                f"declare it in side_outputs",
                operator=self._host.operator_name,
            )
        output.pending.append(row)

    # -- rows -----------------------------------------------------------------------------------------------

    def run(self, data: InputRows, numbers: list[int] | None) -> None:
        """Handle rows, in their order; `numbers` are those of their inputs, if there are two."""
        count = len(data.keys) if data.stands_for is None else data.stands_for
        self._rows += count
        self.rows += count
        if data.times:
            self._note_times(data.times if data.latest is None else data.latest, numbers)
        if self._held is not None:
            self._held.hold(data, self._watermark)
        else:
            self._handle(data, numbers)

    @property
    def takes_batches(self) -> bool:
        """Whether `run_batch` may be called instead of `run`."""
        function = self._function
        return self._host.by_arrow or (isinstance(function, ColumnarFunction) and function.takes_batches)

    def run_batch(self, input: KeyedInput, batch: pa.RecordBatch, groups: memoryview) -> None:
        """Handle the rows of a batch all at once; event time advances to the last of them afterwards."""
        import numpy as np

        if self._arrow is not None:
            self._run_arrow(self._arrow, input, batch, np.asarray(groups))
            return
        function = self._function
        assert isinstance(function, ColumnarFunction)
        input.check_columns(batch)
        times = input.times(batch)
        count = rows_stood_for(batch)
        self._rows += count
        self.rows += count
        self._backend.context.clear()
        self.context.set_timestamp(None)
        with self._column_errors("process_columns"):
            function.process_columns(batch, groups, self.context)
        if times:
            moments = np.asarray(times)
            late = int(np.count_nonzero(moments < self._watermark))
            last = input.latest(batch)
            latest = int((moments if last is None else np.asarray(last)).max())
            known = self._max_times[0]
            self._max_times[0] = latest if known is None else max(known, latest)
            self._late_rows += late
            self.late_rows += late
            self.advance(max(int(moments.max()) - self._lag, self.context.event_now))
        self.fire_due()

    def _run_arrow(self, arrow: ArrowCalls, input: KeyedInput, batch: pa.RecordBatch, groups: Any) -> None:
        """Run `process_arrow` over the rows of a batch that are not late; event time is that of the first."""
        import numpy as np
        import pyarrow as pa

        input.check_columns(batch)
        times = input.times(batch)
        self._rows += batch.num_rows
        self.rows += batch.num_rows
        if times:
            moments = np.asarray(times)
            latest, known = int(moments.max()), self._max_times[0]
            self._max_times[0] = latest if known is None else max(known, latest)
            self.advance(max(times[0] - self._lag, self.context.event_now))
            late = moments < self._watermark
            if late.any():
                self._drop_late(input, batch.filter(pa.array(late)))
                batch, groups = batch.filter(pa.array(~late)), groups[~late]
        self._backend.context.clear()
        self.context.set_timestamp(None)
        if batch.num_rows:
            try:
                made = arrow.run(self._function.process_arrow, input, batch, groups)  # type: ignore[attr-defined]
            except Exception as error:
                place = [("key", error.key)] if isinstance(error, EmberstateError) and error.key is not None else []
                raise self._host.failure(error, "process_arrow", [*place, ("rows", batch.num_rows)]) from error
            for output in made:
                self.outputs[MAIN].add_batch(output)
        self.fire_due()

    def _drop_late(self, input: KeyedInput, late: pa.RecordBatch) -> None:
        """Count the rows of a batch as late, and send them to the late output if there is one."""
        from emberstate.runtime.rows.arrow_rows import rows_of

        self._late_rows += late.num_rows
        self.late_rows += late.num_rows
        self._late_dropped += late.num_rows
        if self._late_output is not None:
            for row in rows_of(late, input.row_type):
                self._emit(self._late_output, row)

    @contextlib.contextmanager
    def _column_errors(self, method: str) -> Iterator[None]:
        """Tell values that do not fit with their key; no user code runs here: any other error is as it is."""
        try:
            yield
        except RowTypeError as error:
            place = [] if error.key is None else [("key", error.key)]
            raise self._host.failure(error, method, place) from error

    def _note_times(self, times: memoryview, numbers: list[int] | None) -> None:
        """Remember the latest time of every input."""
        for number, known in enumerate(self._max_times):
            pairs = () if numbers is None else zip(times, numbers, strict=True)
            latest = max(times if numbers is None else (time for time, n in pairs if n == number), default=None)
            if latest is not None and (known is None or latest > known):
                self._max_times[number] = latest

    def _handle(self, data: InputRows, numbers: list[int] | None) -> None:
        self._keys = data.keys
        self._data = data
        try:
            if self._host.by_batch:
                self._run_by_key(data)
            else:
                self._run_by_row(data, numbers)
        finally:
            self._keys = []
            self._data = None

    def _run_by_row(self, data: InputRows, numbers: list[int] | None) -> None:
        loop = self._loop
        try:
            loop.run(data.made, data.row_class, data.columns, data.keys, data.groups, data.times, numbers)
        except Exception as error:
            if not loop.user_code:
                raise
            loop.user_code = False
            at = loop.position
            method = self._host.elements[numbers[at] if numbers else 0]
            raise self._host.failure(error, method, [("key", data.keys[at]), ("row", data.rows()[at])]) from error

    def _run_by_key(self, data: InputRows) -> None:
        """Run `process_batch` with the rows of each key together."""
        loop = self._loop
        if data.times:
            self.advance(max(data.times[0] - self._lag, self.context.event_now))
        try:
            loop.run_by_key(data.rows(), data.keys, data.groups, data.times, self._function.process_batch)  # type: ignore[attr-defined]
        except Exception as error:
            if not loop.user_code:
                raise
            loop.user_code = False
            place = [("key", data.keys[loop.position]), ("rows", loop.of_key)]
            raise self._host.failure(error, "process_batch", place) from error

    def _release(self, held: HeldRows, until: int) -> None:
        """Handle the held rows before `until`, and timers between them; at `MAX_TIME` all of them."""
        for part in held.take(until if until == MAX_TIME else until - 1):
            if isinstance(part, LateRow):
                self.advance(part.place)
                self._handle_late(part, 0)
            else:
                self._handle(part, None)

    def _handle_late_row(self, row: Any, key: Any, time: int, group: int, number: int) -> None:
        """Handle a late row, which the loop has come to."""
        data = self._data
        whole = row if data is None or data.whole is None else data.whole_row(self._loop.position)
        self._handle_late(LateRow(time, key, group, time, row, whole), number)

    def _handle_late(self, late: LateRow, number: int) -> None:
        row, key = late.row, late.key
        self._late_rows += 1
        self.late_rows += 1
        name = self._host.late[number]
        if name is None:
            self._late_dropped += 1
            if self._late_output is not None:
                self._emit(self._late_output, late.whole)
            return
        self._backend.context.set_current_key_and_group(key, late.key_group)
        self.context.set_timestamp(late.time)
        self._call(name, getattr(self._function, name), row, [("key", key), ("row", row)])
        self.fire_due()

    def run_broadcast(self, row: Any) -> None:
        """Handle a broadcast row, without a current key."""
        side = self._broadcast
        if side is None:
            raise StateDeclarationError(
                f"operator {self._host.operator_name!r}: {self._host.label} takes no broadcast rows",
                operator=self._host.operator_name,
                option="process_broadcast_element",
            )
        self.broadcast_rows += 1
        self._backend.context.clear()
        self.context.set_timestamp(None)
        side.writable = True
        try:
            method = self._function.process_broadcast_element  # type: ignore[attr-defined]
            self._call("process_broadcast_element", method, row, [("row", row)])
        finally:
            side.writable = False
        self.fire_due()

    def _call(self, name: str, method: Any, argument: Any, place: list[tuple[str, Any]]) -> None:
        try:
            result = method(argument, self.context)
            if result is not None:
                collect(result, self._loop.outputs)
            if self._emissions is not None:
                self._emissions.note()
        except Exception as error:
            raise self._host.failure(error, name, place) from error

    # -- time -----------------------------------------------------------------------------------------------

    def set_watermark(self, watermark: int) -> None:
        """Advance event time to `watermark`; rows before it are late."""
        self._watermark = watermark
        if self._held is None:
            self._loop.reach(watermark)
        else:
            self._loop.watermark = MIN_TIME  # what is late was decided when the row was held
            self._release(self._held, watermark)
        self.advance(watermark)
        self.fire_due()

    def set_processing_time(self, processing_time: int) -> None:
        """Advance processing time to `processing_time`."""
        self._set_processing_time(processing_time)
        self.fire_due()

    def _set_processing_time(self, processing_time: int) -> None:
        self.context.set_processing_time(processing_time)
        self._loop.processing_time = processing_time

    def advance(self, until: int) -> None:
        """Fire event-time timers up to `until`; event time moves from each to the next, then to `until`."""
        context, event = self.context, self.timers.event
        if self._emissions is not None:
            self._emissions.moving = until > context.event_now
        while (timer := event.poll(until)) is not None:
            if timer.micros > context.event_now:
                context.move_watermark(timer.micros)
            context.set_timestamp(timer.micros)
            self._fire(timer)
        if self._emissions is not None:
            self._emissions.moving = False
        if until > context.event_now:
            context.move_watermark(until)

    def fire_due(self) -> None:
        """Fire timers until none is due at the current times."""
        context, event, processing = self.context, self.timers.event, self.timers.processing
        now = self._loop.processing_time
        while True:
            if event.next_time <= context.event_now:
                self.advance(context.event_now)
            timer = processing.poll(now)
            if timer is None:
                return
            context.set_timestamp(None)
            self._fire(timer)

    def _fire(self, timer: KeyedTimer) -> None:
        self._repeats = self._repeats + 1 if timer == self._last_fired else 0
        self._last_fired = timer
        if self._repeats >= MAX_REPEATS:
            raise UserFunctionError(
                f"operator {self._host.operator_name!r}: {self._host.label}.on_timer registers the timer that fires, "
                f"{timer!r}, again and again for a time that has passed: register it for a later one",
                operator=self._host.operator_name,
                key=timer.key,
            )
        self._fired += 1
        self.timers_fired += 1
        self._call("on_timer", self._function.on_timer, timer, [("key", timer.key), ("timer", timer)])


def _refusals(host: FunctionHost, has_event_time: bool) -> dict[TimeDomain, StateDeclarationError | None]:
    """Why no timer of a domain may be registered."""
    where = f"operator {host.operator_name!r}: {host.label} registers"
    if not host.has_timers:
        unhandled = f"{where} a timer and has no on_timer to handle it"
        return dict.fromkeys(
            TimeDomain, StateDeclarationError(unhandled, operator=host.operator_name, option="on_timer")
        )
    never = StateDeclarationError(
        f"{where} a timer in event time, and nothing has an event time: it would never fire. Say which column it is, "
        f"key_by(…).event_time(column) or Harness(…, event_time=column), or register it in processing time.",
        operator=host.operator_name,
        option="event_time",
    )
    return {TimeDomain.PROCESSING: None, TimeDomain.EVENT: None if has_event_time else never}
