"""`RunningAggregates`: aggregates without windows: one result per key, over all its rows.

A key that changed emits once, at the end of the transaction; with `es.every(…)`, at the next multiple of the interval
of processing time. Late rows count like others: nothing was closed that they could miss.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from emberstate.runtime.aggregates.accumulated import Accumulated, own_descriptors, record_descriptor
from emberstate.runtime.aggregates.emission import Every
from emberstate.runtime.aggregates.partials import partial_maker
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.functions.columnar import ColumnarFunction
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.functions.function import Outputs
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.timers import VOID_NAMESPACE

if TYPE_CHECKING:
    import pyarrow as pa

    from emberstate.runtime.aggregates.columns import ColumnAggregates

#: The name of the state with the records; stored.
RECORDS: Final = "aggregates"
_EMIT_TIMER: Final = "emit"
_NAMESPACES: Final = (VOID_NAMESPACE,)


class RunningAggregates(ColumnarFunction):
    """A function of the partial rows of a stage without windows."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._given = spec
        self._spec = spec.with_whole_rows(False)
        self._record = record_descriptor(RECORDS, self._spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return RunningAggregates, (self._given,)  # record classes are made in each process

    def declared_states(self) -> list[Declaration]:
        """The record, and the states beside it."""
        return [Declaration(state) for state in self._states()]

    def open(self, ctx: FunctionContext) -> None:
        """Register all states."""
        self._partial_of = partial_maker(self._given)
        by_row = self._given.whole_rows or isinstance(self._spec.emit, Every)
        self._columns = None if by_row else self._in_columns(ctx)
        self._accumulated = Accumulated(self._spec, self._record, ctx.get_internal_state)
        emit = self._spec.emit
        self._interval = emit.micros if isinstance(emit, Every) else None
        self._has_key = bool(self._spec.key_columns)
        self._has_many_keys = len(self._spec.key_columns) > 1
        #: The keys that changed in this transaction, in order.
        self._changed: dict[Any, None] = {}

    def _in_columns(self, ctx: FunctionContext) -> ColumnAggregates | None:
        """What works on batches, if the aggregates and the backend allow it."""
        from emberstate.runtime.aggregates.column_plan import column_plan
        from emberstate.runtime.aggregates.columns import ColumnAggregates

        plan = column_plan(self._spec)
        table = None if plan is None else ctx.get_column_state(self._record)
        return None if plan is None or table is None else ColumnAggregates(self._spec, plan, table)

    @property
    def takes_batches(self) -> bool:
        """Whether the state is in columns."""
        return self._columns is not None

    def process_columns(self, batch: pa.RecordBatch, key_groups: memoryview, ctx: FunctionContext) -> None:
        """Merge all partial rows of a batch in."""
        assert self._columns is not None
        self._columns.merge(batch, key_groups)

    def finish_columns(self) -> list[pa.RecordBatch]:
        """The keys that changed."""
        assert self._columns is not None
        batch = self._columns.take_changed()
        return [] if batch is None else [batch]

    def process_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Merge a partial row in."""
        if self._partial_of is not None:
            row = self._partial_of(row, ctx.timestamp_micros)
        self._accumulated.add(VOID_NAMESPACE, row)
        if self._interval is None:
            self._changed[ctx.key] = None
        else:
            now = ctx.processing_time_micros or 0
            ctx.timers.processing.register(_EMIT_TIMER, now - now % self._interval + self._interval)
        return None

    process_late_element = process_element

    def on_timer(self, timer: KeyedTimer, ctx: FunctionContext) -> Outputs:
        """Emit the key."""
        return self._result(timer.key)

    def unfinished(self) -> list[Any]:
        """The keys that changed."""
        found = list(self._changed)
        self._changed = {}
        if self._columns is not None:  # a transaction may have both batches and single rows
            found = [key for key in found if not self._columns.was_taken(key, VOID_NAMESPACE)]
        return found

    def finish_key(self, key: Any, ctx: FunctionContext) -> Outputs:
        """Emit a key that changed."""
        return self._result(key)

    def _result(self, key: Any) -> Outputs:
        [results] = self._accumulated.elements(_NAMESPACES)
        if not self._has_key:
            return tuple(results)
        return (*key, *results) if self._has_many_keys else (key, *results)

    def _states(self) -> list[StateDescriptor]:
        return [self._record, *own_descriptors(RECORDS, self._spec).values()]
