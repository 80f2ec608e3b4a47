"""`WindowAggregates`: the functions of `runtime.windows` over partial rows, and what they emit when.

Windows, triggers, timers, lateness and clean-up are those of all windows. What differs:

- the content of a window is what was accumulated for it, in one state or several (`accumulated`);
- sessions come with the rows, as panes: a partial row may stand for several rows of one session;
- what fires for a row, because the window changed or because the row came after its end, is emitted at the end of the
  transaction, once for a window however many rows there were; or before, with what fires by a timer, or when the
  window is cleaned up. A user's trigger fires at once;
- most windows of event time take whole batches, if the backend holds their records in columns (`pane_columns`,
  `session_columns`). A stage may go from one way to the other between two runs (`resume`).

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from emberstate.errors import InvariantError
from emberstate.runtime.aggregates.accumulated import Accumulated, own_descriptors
from emberstate.runtime.aggregates.emission_triggers import WholeRowTrigger
from emberstate.runtime.aggregates.partials import partial_maker
from emberstate.runtime.aggregates.spec import PANE_END, PANE_START, WHOLE, AggregateSpec
from emberstate.runtime.functions.columnar import ColumnarFunction
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer, TimeDomain
from emberstate.runtime.functions.function import Outputs
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.trigger import TriggerResult
from emberstate.runtime.windows.window_function import FIRINGS, WindowFunction
from emberstate.runtime.windows.window_state import WindowState
from emberstate.state.descriptors import AggregatingStateDescriptor

if TYPE_CHECKING:
    import pyarrow as pa

    from emberstate.heap.columns.column_table import ColumnTable
    from emberstate.runtime.aggregates.column_plan import ColumnPlan

    _Base = WindowFunction
else:
    _Base = object


class WindowColumns(Protocol):
    """Windows in columns."""

    def add(self, batch: pa.RecordBatch, groups: memoryview) -> None:
        """Merge partial rows in."""

    def add_row(self, row: Any) -> None:
        """Merge a partial row of the current key in."""

    def fire(self, timer: KeyedTimer) -> None:
        """Note that a timer, whose key is current, has fired."""

    def finish(self) -> list[pa.RecordBatch]:
        """What the transaction emits."""


class WindowAggregates(ColumnarFunction, _Base):
    """What the functions below have in common; each of them is also a `WindowFunction`."""

    #: The declaration, as given and without `whole_rows`.
    given: AggregateSpec
    aggregates: AggregateSpec
    #: Makes this function of `given`: record classes are made in each process.
    maker: Callable[[AggregateSpec], WindowFunction]
    _columns: WindowColumns | None

    def __reduce__(self) -> tuple[Any, ...]:
        return self.maker, (self.given,)

    def declared_states(self) -> list[Declaration]:
        """The states of windows, and those beside the record."""
        window_type = self.spec.assigner.window_type
        own = own_descriptors(self.spec.contents.name, self.aggregates)
        return [*super().declared_states(), *(Declaration(state, window_type) for state in own.values())]

    def open(self, ctx: FunctionContext) -> None:
        """Open the states."""
        self._columns = self._in_columns(ctx)  # first: what is registered already is not in columns
        super().open(ctx)
        spec = self.aggregates
        self._partial_of = partial_maker(self.given)
        partial = spec.partial
        self._pane = (partial.position(PANE_START), partial.position(PANE_END)) if spec.has_panes else None
        self._whole = partial.position(WHOLE) if spec.has_whole else None
        self._key_count = len(spec.key_columns)
        self._has_bounds = self.spec.assigner.window_type is TimeWindow
        self._defers = not isinstance(self.spec.trigger, WholeRowTrigger)
        #: What is to be emitted at the end of the transaction: windows, in order, by key.
        self._deferred: dict[Any, dict[Any, None]] = {}

    # -- partial rows ---------------------------------------------------------------------------------------

    def process_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Merge a partial row into its windows."""
        if self._columns is not None:
            self._columns.add_row(row)
            return None
        if self._partial_of is not None:
            row = self._partial_of(row, ctx.timestamp_micros)
        if self._pane is not None and row[self._pane[0]] is not None:
            start, end, time = row[self._pane[0]], row[self._pane[1]], ctx.timestamp_micros
            if time is None or not start <= time < end:
                raise InvariantError(f"a partial row of [{start}, {end}) has the time {time}", found=repr(row))
        return super().process_element(row, ctx)

    process_late_element = process_element

    def on_timer(self, timer: KeyedTimer, ctx: FunctionContext) -> Outputs:
        """Emit what was deferred, if the window is about to be cleaned up; then do as windows do."""
        if self._columns is not None:
            self._columns.fire(timer)
            return None
        out: list[Any] = []
        if self._deferred and (timer.domain is TimeDomain.EVENT) == self._is_event_time:
            window = self._window_of(timer.namespace)
            if timer.micros >= self._cleanup_time(window) and self._undefer(window):
                self._emit(window, self._content(window), out)
        done = super().on_timer(timer, ctx)
        return [*out, *done] if out else done  # type: ignore[misc]

    def _window_of(self, namespace: Any) -> Any:
        """The window that a timer is about."""
        return namespace

    def _drop_late(self, row: Any) -> None:
        """The late output gets the input row."""
        super()._drop_late(row if self._whole is None else row[self._whole])

    # -- columns --------------------------------------------------------------------------------------------

    def _in_columns(self, ctx: FunctionContext) -> WindowColumns | None:
        """The windows in columns, if windows, aggregates and backend allow it."""
        raise NotImplementedError

    def _column_table(self, ctx: FunctionContext) -> tuple[ColumnPlan, ColumnTable] | None:
        """The table of the records, and how to fold into it; None if they are not in columns."""
        record = self.spec.contents
        if not self.aggregates.is_combinable or not self.aggregates.has_panes or self.given.whole_rows:
            return None
        from emberstate.runtime.aggregates.column_plan import column_plan

        assert isinstance(record, AggregatingStateDescriptor)
        plan = column_plan(self.aggregates)
        table = None if plan is None else ctx.get_column_state(record, namespace_type=TimeWindow)
        return None if plan is None or table is None else (plan, table)

    @property
    def takes_batches(self) -> bool:
        """Whether the state is in columns."""
        return self._columns is not None

    def process_columns(self, batch: pa.RecordBatch, key_groups: memoryview, ctx: FunctionContext) -> None:
        """Merge the partial rows of a batch into their windows."""
        assert self._columns is not None
        self._columns.add(batch, key_groups)

    def finish_columns(self) -> list[pa.RecordBatch]:
        """The windows that have closed or changed."""
        assert self._columns is not None
        return self._columns.finish()

    def _drop_late_rows(self, rows: list[Any]) -> None:
        """Drop partial rows whose windows are all past."""
        count = len(self.aggregates.keys)
        for row in rows:
            self._ctx.backend.set_current_key(row[0] if count == 1 else tuple(row[:count]))
            self._drop_late(row)

    # -- emitting -------------------------------------------------------------------------------------------

    def unfinished(self) -> list[Any]:
        """The keys with windows to emit."""
        return list(self._deferred)

    def finish_key(self, key: Any, ctx: FunctionContext) -> Outputs:
        """Emit the windows of a key that rows have fired."""
        out: list[Any] = []
        for window in self._deferred.pop(key):
            self._emit(window, self._content(window), out)
        return out

    def _on_element(self, row: Any, window: Any) -> TriggerResult:
        result = super()._on_element(row, window)
        if not result.is_fire or not self._defers:
            return result
        self._defer(window)
        return TriggerResult.CONTINUE

    def _emit(self, window: Any, elements: list[Any], out: list[Any]) -> None:
        context = self._ctx
        key = context.key
        if self._deferred:
            self._undefer(window)
        for results in elements:
            context.count(FIRINGS)
            row = [] if not self._key_count else [key] if self._key_count == 1 else [*key]
            if self._has_bounds:
                row += (window.start_time, window.end_time)
            out.append((*row, *results))

    def _defer(self, window: Any) -> None:
        """Emit a window of the current key at the end of the transaction."""
        self._deferred.setdefault(self._ctx.key, {})[window] = None

    def _undefer(self, window: Any) -> bool:
        """Forget that a window of the current key is to be emitted; return whether it was."""
        key = self._ctx.key
        windows = self._deferred.get(key, {})
        if window not in windows:
            return False
        del windows[window]
        if not windows:
            del self._deferred[key]
        return True

    def _content(self, window: Any) -> list[Any]:
        """What a window holds, as `_emit` wants it; nothing if it is part of another by now."""
        raise NotImplementedError

    def _window_state(self) -> WindowState:
        contents = self.spec.contents
        assert isinstance(contents, AggregatingStateDescriptor)
        window_type = self.spec.assigner.window_type
        return Accumulated(self.aggregates, contents, lambda state: self._internal(state, window_type))
