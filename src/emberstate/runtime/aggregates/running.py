"""`RunningAggregates`: aggregates without windows: one result per key, over all its rows.

A key that changed emits once, at the end of the transaction; with `es.every(…)`, at the next multiple of the interval
of processing time. Late rows count like others: nothing was closed that they could miss.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any, Final

from emberstate.runtime.aggregates.accumulated import Accumulated, own_descriptors, record_descriptor
from emberstate.runtime.aggregates.emission import Every
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.declared_states import Declaration
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.functions.finishing import FinishingFunction
from emberstate.runtime.functions.function import Outputs
from emberstate.state.descriptors import StateDescriptor
from emberstate.state.timers import VOID_NAMESPACE

#: The name of the state with the records; stored.
RECORDS: Final = "aggregates"
_EMIT_TIMER: Final = "emit"
_NAMESPACES: Final = (VOID_NAMESPACE,)


class RunningAggregates(FinishingFunction):
    """A function of the partial rows of a stage without windows."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._record = record_descriptor(RECORDS, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return RunningAggregates, (self._spec,)  # record classes are made in each process

    def declared_states(self) -> list[Declaration]:
        """The record, and the states beside it."""
        return [Declaration(state) for state in self._states()]

    def open(self, ctx: FunctionContext) -> None:
        """Register all states."""
        self._ctx = ctx
        self._accumulated = Accumulated(self._spec, self._record, ctx.get_internal_state)
        emit = self._spec.emit
        self._interval = emit.micros if isinstance(emit, Every) else None
        self._has_key = bool(self._spec.key_columns)
        self._has_many_keys = len(self._spec.key_columns) > 1
        #: The keys that changed in this transaction, in order.
        self._changed: dict[Any, None] = {}

    def process_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Merge a partial row in."""
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
