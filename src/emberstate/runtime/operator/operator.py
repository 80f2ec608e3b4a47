"""`KeyedOperator`: runs a function over rows and timers, key by key. The caller drives it; it reads no clock.

A transaction is `begin`, rows, `end`. `begin` takes the transaction's processing time and watermark, and fires the
timers that are due. With event time, rows come sorted by it; before a row of time t the operator fires the timers up to
t minus the out-of-orderness. A row is late if its time is before the watermark of `begin` or `advance_watermark`. A
timer registered for a time already passed fires after the current row or timer. While timers fire, event time moves
from one to the next. So rows in order give the same outputs, however they are cut into transactions. Rows of an
operator that follows another come in any order, and wait until the watermark has passed them (`held_rows`).

An error fails the transaction; the caller can only `roll_back` to a snapshot taken before it. That makes a new function
from the prototype: attributes that the failed attempt set do not survive.

Thread safety: one thread, the backend's owner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import InvariantError, LifecycleError, StateDeclarationError
from emberstate.runtime.functions.broadcast import BroadcastSide
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.functions.host import FunctionHost
from emberstate.runtime.operator.held_rows import HeldRows
from emberstate.runtime.operator.runner import ElementRunner
from emberstate.runtime.operator.snapshot import OperatorSnapshot
from emberstate.runtime.rows.keyed_input import InputRows, KeyedInput, read_two
from emberstate.runtime.rows.outputs import MAIN, TransactionResult
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.row_shape import RowShape
from emberstate.runtime.rows.times import MIN_TIME, from_micros
from emberstate.state.descriptors import check_state_name
from emberstate.state.keyed_state_backend import BackendStatistics, KeyedStateBackend
from emberstate.units import Duration, as_micros

if TYPE_CHECKING:
    import pyarrow as pa


#: A thousand years: subtracting it from any row's time does not overflow.
MAX_LAG: Final = 1_000 * 366 * 86_400 * 1_000_000
#: Values with a time to live that are checked per row, as in Flink, and at least per transaction.
CLEANED_PER_ROW: Final = 5
LEAST_CLEANED: Final = 1_000


class Phase(enum.Enum):
    """State of an operator's life."""

    NEW = "not open"
    IDLE = "outside a transaction"
    RUNNING = "in a transaction"
    FAILED = "in a failed transaction"
    CLOSED = "closed"


@dataclasses.dataclass(frozen=True, slots=True)
class OperatorStatistics:
    """Counts since the operator was made, failed attempts included."""

    name: str
    rows: int
    late_rows: int
    timers_fired: int
    transactions: int
    roll_backs: int
    watermark: int
    backend: BackendStatistics
    broadcast: BackendStatistics | None


class KeyedOperator:
    """A function, its state and its timers.

    >>> from emberstate.heap.backend import HeapKeyedStateBackend
    >>> from emberstate.keygroups import KeySchema
    >>> from emberstate.runtime.functions.declared_states import value_state
    >>> from emberstate.runtime.functions.function import KeyedProcessFunction
    >>> class Count(KeyedProcessFunction):
    ...     seen = value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield ctx.key, self.seen.value()
    >>> operator = KeyedOperator("count", Count(), HeapKeyedStateBackend(KeySchema.from_python(str)))
    >>> operator.open()
    >>> operator.begin(processing_time=0)
    >>> for card in ("a", "b", "a"):
    ...     operator.process(card, (card,))
    >>> operator.end().main
    [('a', 1), ('b', 1), ('a', 2)]
    """

    def __init__(
        self,
        name: str,
        function: ProcessFunction,
        backend: KeyedStateBackend,
        *,
        inputs: Sequence[KeyedInput] = (),
        broadcast_row_type: RowType | str | None = None,
        broadcast_shape: RowShape | None = None,
        output: RowType | str | None = None,
        side_outputs: Mapping[str, RowType | str | None] | None = None,
        late_output: str | None = None,
        out_of_orderness: Duration = "0 seconds",
        follows: bool = False,
        followed: bool = False,
        inputs_in_step: bool = False,
        follows_event_time: bool = False,
    ) -> None:
        """Make an operator around a backend; `close` closes the backend too.

        Record batches need `inputs` (one, or two for a `KeyedCoProcessFunction`); `process` does not. An output
        without a schema is not checked and cannot become record batches. `late_output` gets the late rows that the
        function does not handle; it has the schema of the input.

        An operator that `follows` another holds its rows until the watermark has passed them, and handles them in
        order of event time. An operator that is `followed` emits rows with their origin. With two inputs, event time
        is that of the slower one; `inputs_in_step` says that the rows of both come in one order.

        `follows_event_time`: the watermark comes from another stage, though no input has an event time.
        """
        self.name = check_state_name(name)
        self.backend = backend
        self._host = FunctionHost(name, function)
        self._inputs = tuple(inputs)
        if self._inputs and len(self._inputs) != len(self._host.elements):
            what = f"operator {name!r} has {len(self._host.elements)} inputs, found {len(inputs)}"
            raise StateDeclarationError(
                what, operator=name, option="inputs", expected=len(self._host.elements), found=len(inputs)
            )
        self._broadcast = BroadcastSide() if self._host.has_broadcast else None
        self._broadcast_row_type = None if broadcast_row_type is None else RowType.of(broadcast_row_type)
        self._broadcast_shape = broadcast_shape
        self._late_output = late_output
        self._row_types = self._declared_outputs(output, side_outputs or {}, late_output)
        given = [input.out_of_orderness for input in self._inputs] or [None] * len(self._host.elements)
        self._lags = tuple(self._checked_lag(out_of_orderness if one is None else one) for one in given)
        self._in_step = inputs_in_step
        self._follows = follows
        self._followed = followed
        if follows and (len(self._inputs) != 1 or self._inputs[0].event_time is None):
            what = f"operator {name!r} follows another: it has one input, with an event time"
            raise StateDeclarationError(what, operator=name, option="event_time")
        if self._host.by_arrow and (follows or followed):
            raise StateDeclarationError(
                f"operator {name!r}: {self._host.label} has process_arrow, and rows go from stage to stage one by one, "
                f"each with its key and event time: use process_element or process_batch here, or leave out the event "
                f"time of the later stage",
                operator=name,
                option="process_arrow",
            )
        self._has_event_time = (
            follows_event_time or not self._inputs or any(input.event_time is not None for input in self._inputs)
        )
        self._phase = Phase.NEW
        self._watermark = MIN_TIME
        self._transactions = self._roll_backs = 0

    def _checked_lag(self, out_of_orderness: Duration) -> int:
        lag = as_micros(out_of_orderness, "out_of_orderness", f"operator {self.name!r}")
        if not 0 <= lag <= MAX_LAG:
            raise StateDeclarationError(
                f"out_of_orderness of operator {self.name!r}: expected 0 to 1,000 years, got {out_of_orderness}",
                operator=self.name,
                option="out_of_orderness",
            )
        return lag

    def _declared_outputs(
        self, output: RowType | str | None, sides: Mapping[str, RowType | str | None], late: str | None
    ) -> dict[str, RowType | None]:
        if MAIN in sides or late == MAIN:
            what = f"operator {self.name!r}: {MAIN!r} is the main output's name, choose another"
            option = "side_outputs" if MAIN in sides else "late_output"
            raise StateDeclarationError(what, operator=self.name, option=option, found=MAIN)
        declared = {MAIN: output, **sides}
        if late is not None and declared.get(late) is None:
            if len({input.row_type for input in self._inputs}) > 1:
                raise StateDeclarationError(
                    f"operator {self.name!r}: the inputs have different columns, so {late!r} cannot take the late "
                    f"rows of both: define process_late_element1 and 2, and emit them there",
                    operator=self.name,
                    option="late_output",
                )
            declared[late] = self._inputs[0].row_type if self._inputs else None
        for name in declared:
            check_state_name(name)
        return {name: None if type_ is None else RowType.of(type_) for name, type_ in declared.items()}

    # -- life -----------------------------------------------------------------------------------------------

    @property
    def broadcast_backend(self) -> KeyedStateBackend | None:
        """The backend of broadcast state, the same in every slot; None if the function has none."""
        return None if self._broadcast is None else self._broadcast.backend

    @property
    def watermark(self) -> int:
        """The watermark before which rows are late, in microseconds."""
        return self._watermark

    def open(self) -> None:
        """Register states and timers, and open the function. A caller that restores does so next, before `begin`."""
        self._need("open()", Phase.NEW)
        held = HeldRows(self.backend, self._inputs[0], self._lags[0]) if self._follows else None
        self._runner = ElementRunner(
            self._host,
            self.backend,
            self._broadcast,
            self._row_types,
            self._late_output,
            (0,) if self._follows else self._lags,
            followed=self._followed,
            held=held,
            in_step=self._in_step,
            has_event_time=self._has_event_time,
        )
        self._phase = Phase.IDLE

    def close(self) -> None:
        """Close the function and the backend; a second call does nothing."""
        if self._phase is Phase.CLOSED:
            return
        if self._phase is not Phase.NEW:
            self._runner.dispose()
        self._phase = Phase.CLOSED
        self.backend.close()
        if self._broadcast is not None:
            self._broadcast.backend.close()

    def snapshot(self) -> OperatorSnapshot:
        """Return a point to roll back to. Call it between transactions."""
        self._need("snapshot()", Phase.IDLE)
        broadcast = self.broadcast_backend
        return OperatorSnapshot(
            self.backend.snapshot(), None if broadcast is None else broadcast.snapshot(), self._watermark
        )

    def roll_back(self, snapshot: OperatorSnapshot) -> None:
        """Return to the state of `snapshot`, with a new copy of the function."""
        self._need("roll_back()", Phase.IDLE, Phase.RUNNING, Phase.FAILED)
        self._phase = Phase.FAILED
        self.backend.roll_back(snapshot.keyed)
        broadcast = self.broadcast_backend
        if broadcast is not None:
            assert snapshot.broadcast is not None  # `snapshot` takes both
            broadcast.roll_back(snapshot.broadcast)
        self._watermark = snapshot.watermark
        self._runner.renew()
        self._roll_backs += 1
        self._phase = Phase.IDLE

    # -- a transaction --------------------------------------------------------------------------------------

    def begin(self, processing_time: int, watermark: int | None = None) -> None:
        """Start a transaction at these times, in microseconds, and fire the timers that are due.

        Without a watermark the last one stands. Processing time may be earlier than in the last transaction: clocks
        are set back.
        """
        self._need("begin()", Phase.IDLE)
        target = self._checked_watermark(self._watermark if watermark is None else watermark)
        self._watermark = target
        self._transactions += 1
        self._phase = Phase.RUNNING
        with self._attempt("begin()"):
            self._runner.begin(processing_time, target)

    def process(
        self, key: Any, row: Any, timestamp: int | None = None, *, key_group: int | None = None, input: int = 0
    ) -> None:
        """Handle one row; its outputs are checked at once.

        With `key_group`, the key must be canonical, as `KeySchema.normalise` returns it.
        """
        with self._attempt("process()"):
            if self._host.by_arrow:
                raise StateDeclarationError(
                    f"operator {self.name!r}: {self._host.label} has process_arrow, which takes record batches: use "
                    f"process_batch()",
                    operator=self.name,
                    option="process_arrow",
                )
            if key_group is None:
                key = self.backend.context.normalise(key)
                key_group = self.backend.context.grouper(key)
            one = InputRows.of_one(row, key, key_group, timestamp)
            self._runner.run(one, [input] if self._host.two_inputs else None)
            self._runner.check_outputs()

    def process_batch(self, batch: pa.RecordBatch) -> None:
        """Handle the rows of a record batch, in their order; see `keyed_input` for its columns."""
        with self._attempt("process_batch()"):
            if not self._inputs:
                raise StateDeclarationError(
                    f"operator {self.name!r} has no inputs: it cannot read record batches. Give inputs=",
                    operator=self.name,
                )
            context, numbers = self.backend.context, None
            if self._runner.takes_batches:
                groups = self._inputs[0].key_groups(batch)
                if groups is None:  # a batch that does not come from Spark, or that has a null as a key
                    groups = self._inputs[0].read(batch, context.key_schema, context.grouper).groups
                self._runner.run_batch(self._inputs[0], batch, groups)
                return
            if self._host.two_inputs:
                data, numbers = read_two(batch, self._inputs, context.key_schema, context.grouper)
            else:
                data = self._inputs[0].read(batch, context.key_schema, context.grouper)
            self._runner.run(data, numbers)
            self._runner.seal_outputs()

    def process_broadcast(self, row: Any) -> None:
        """Handle one broadcast row."""
        with self._attempt("process_broadcast()"):
            self._runner.run_broadcast(row)

    def process_broadcast_batch(self, batch: pa.RecordBatch) -> None:
        """Handle broadcast rows, in their order."""
        from emberstate.runtime.rows.arrow_rows import row_type_of, rows_of

        row_type, shape = self._broadcast_row_type or row_type_of(batch.schema), self._broadcast_shape
        rows: list[Any] = rows_of(batch, row_type)
        with self._attempt("process_broadcast()"):
            if shape is not None:
                shape.check_nulls(batch, lambda position: f"{rows[position]!r:.500}")
                rows = shape.of_rows(rows, row_type)
        for row in rows:
            self.process_broadcast(row)

    def advance_watermark(self, watermark: int) -> None:
        """Advance event time to `watermark`, in microseconds: rows before it are late from here on.

        `MAX_TIME` fires all event-time timers, and those that they register: a timer that always registers another
        never ends.
        """
        with self._attempt("advance_watermark()"):
            self._watermark = self._checked_watermark(watermark)
            self._runner.set_watermark(watermark)

    def advance_processing_time(self, processing_time: int) -> None:
        """Advance processing time to `processing_time`, in microseconds, inside a transaction."""
        with self._attempt("advance_processing_time()"):
            self._runner.set_processing_time(processing_time)

    def end(self) -> TransactionResult:
        """End the transaction, clear the current key, and return the result.

        Removes some expired values, more after more rows.
        """
        with self._attempt("end()"):
            self._runner.finish()
            self._runner.check_outputs()
            result = self._runner.result()
            self.backend.clean_up(max(LEAST_CLEANED, CLEANED_PER_ROW * result.rows))
        self.backend.context.clear()
        self._phase = Phase.IDLE
        return result

    # -- monitoring -----------------------------------------------------------------------------------------

    def progress(self) -> str:
        """Return how far it has got, as a text that changes with every step. Any thread."""
        return "not open" if self._phase is Phase.NEW else self._runner.progress()

    def statistics(self) -> OperatorStatistics:
        """Return counts of the operator and its backends."""
        broadcast = self.broadcast_backend
        return OperatorStatistics(
            name=self.name,
            rows=self._runner.rows,
            late_rows=self._runner.late_rows,
            timers_fired=self._runner.timers_fired,
            transactions=self._transactions,
            roll_backs=self._roll_backs,
            watermark=self._watermark,
            backend=self.backend.statistics(),
            broadcast=None if broadcast is None else broadcast.statistics(),
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken. O(all entries)."""
        self.backend.check_invariants()
        if self._broadcast is not None:
            self._broadcast.backend.check_invariants()
        for timers in (self._runner.timers.event, self._runner.timers.processing):
            head = timers.queue.peek()
            if self._phase is Phase.RUNNING and head is not None and head.time < timers.next_time:
                raise InvariantError(f"{head!r} is earlier than next_time {timers.next_time}", operator=self.name)

    # -- inside ---------------------------------------------------------------------------------------------

    def _need(self, what: str, *phases: Phase) -> None:
        if self._phase not in phases:
            hint = "; roll back first" if self._phase is Phase.FAILED else ""
            raise LifecycleError(
                f"operator {self.name!r}: {what} {' or '.join(phase.value for phase in phases)}, but it is "
                f"{self._phase.value}{hint}",
                operator=self.name,
                expected=tuple(phase.value for phase in phases),
                found=self._phase.value,
            )

    @contextlib.contextmanager
    def _attempt(self, what: str) -> Iterator[None]:
        """Run a part of a transaction; an error in it fails the transaction."""
        self._need(what, Phase.RUNNING)
        try:
            yield
        except BaseException:
            self._phase = Phase.FAILED
            self.backend.context.clear()
            raise

    def _checked_watermark(self, watermark: int) -> int:
        if watermark < self._watermark:
            raise LifecycleError(
                f"operator {self.name!r}: the watermark would go back from {from_micros(self._watermark)} to "
                f"{from_micros(watermark)}; timers up to the former have fired. Give one that only grows.",
                operator=self.name,
            )
        return watermark
