"""`window(…)`: from an assigner to a function of the runtime.

>>> from emberstate import AggregateFunction, HeapKeyedStateBackend, KeySchema
>>> from emberstate.runtime.operator.operator import KeyedOperator
>>> from emberstate.runtime.windows.assigners import TumblingEventTimeWindows
>>> class Count(AggregateFunction[tuple[int], int, int]):
...     def create_accumulator(self): return 0
...     def add(self, row, count): return count + 1
...     def get_result(self, count): return count
...     def merge(self, one, other): return one + other
>>> class WithWindow(ProcessWindowFunction):
...     def process(self, key, ctx, elements):
...         yield key, ctx.window.start, ctx.window.end, *elements
>>> counts = window(TumblingEventTimeWindows.of("10 microseconds")).aggregate(Count(), function=WithWindow())
>>> operator = KeyedOperator("counts", counts, HeapKeyedStateBackend(KeySchema.from_python(str)))
>>> operator.open()
>>> operator.begin(processing_time=0)
>>> for time in (1, 2, 11, 25):
...     operator.process("ann", (time,), time)
>>> operator.end().main
[('ann', 0, 10, 2), ('ann', 10, 20, 1)]

Immutable; any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

from emberstate.codec import Codec
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows.assigners import SlidingWindows, WindowAssigner
from emberstate.runtime.windows.merging_window_function import MERGING_CONTENTS, MergingWindowFunction
from emberstate.runtime.windows.plain_window_function import PlainWindowFunction
from emberstate.runtime.windows.process_window_function import ProcessWindowFunction
from emberstate.runtime.windows.sliced_window_function import SlicedWindowFunction
from emberstate.runtime.windows.slices import SliceGrid
from emberstate.runtime.windows.time_window import GlobalWindow, TimeWindow
from emberstate.runtime.windows.trigger import Trigger
from emberstate.runtime.windows.window_contents import sliced_names
from emberstate.runtime.windows.window_function import WindowFunction, WindowSpec
from emberstate.runtime.windows.window_state import CONTENTS
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from emberstate.state.states import AggregateFunction
from emberstate.units import Duration, as_micros

T = TypeVar("T")


def window(
    assigner: WindowAssigner,
    *,
    trigger: Trigger | None = None,
    allowed_lateness: Duration = "0 seconds",
    late_output: str | None = None,
) -> WindowedRows:
    """Put rows into the windows of `assigner`; call `reduce`, `aggregate` or `process` on the result.

    `trigger` says when windows fire, if not when they end. A window takes rows until the watermark is
    `allowed_lateness` past its end, and fires again for each that comes after its end. Rows that come later still are
    counted and dropped or, with `late_output`, sent to that side output.
    """
    if not isinstance(assigner, WindowAssigner):
        raise StateDeclarationError(
            f"window() needs an assigner such as TumblingEventTimeWindows.of('1 hour'), got {assigner!r}",
            option="assigner",
        )
    kind = type(assigner).__name__
    if assigner.window_type not in (TimeWindow, GlobalWindow):
        what = f"{kind} assigns {assigner.window_type!r}: windows are TimeWindow or GlobalWindow"
        raise StateDeclarationError(what, option="window_type")
    chosen = assigner.default_trigger() if trigger is None else trigger
    if not isinstance(chosen, Trigger):
        raise StateDeclarationError(f"the trigger of {kind} is {chosen!r}, which is no Trigger", option="trigger")
    if assigner.is_merging and not chosen.can_merge:
        raise StateDeclarationError(
            f"{kind} merge and {chosen!r} does not: give the trigger an on_merge and can_merge = True, or use another",
            option="can_merge",
        )
    lateness = as_micros(allowed_lateness, "allowed_lateness")
    if lateness < 0:
        what = f"allowed_lateness must not be negative, got {allowed_lateness!r}"
        raise StateDeclarationError(what, option="allowed_lateness")
    if not assigner.is_event_time and (lateness or late_output is not None):
        raise StateDeclarationError(
            f"{kind} do not look at event time, so no row is late for them: leave out allowed_lateness and late_output",
            option="late_output" if late_output is not None else "allowed_lateness",
        )
    return WindowedRows(assigner, chosen, lateness, late_output)


@dataclasses.dataclass(frozen=True, slots=True)
class WindowedRows:
    """Rows in windows; `reduce`, `aggregate` or `process` makes a function of it that an operator can run.

    After `reduce` and `aggregate` only the folded value is stored. It is the output row (a value that is no tuple or
    dict becomes a row with one column), unless a `ProcessWindowFunction` makes rows of it, key and window.
    Overlapping sliding windows share what they store, in slices, unless the trigger may purge; a reduce function is
    associative, then, and rows reach a `process` function slice by slice.
    """

    assigner: WindowAssigner
    trigger: Trigger
    allowed_lateness: int
    late_output: str | None

    def reduce(
        self,
        reduce: Callable[[T, T], T],
        row_type: RowType | type[T] | Codec[T],
        *,
        function: ProcessWindowFunction | None = None,
    ) -> WindowFunction:
        """Fold the rows of a window, which are of `row_type`, by a function of two of them."""
        type_ = _stored_type(row_type)
        return self._function(lambda name: ReducingStateDescriptor(name, reduce, type_), function)

    def aggregate(
        self,
        aggregate: AggregateFunction[Any, Any, Any],
        accumulator_type: Any = None,
        *,
        function: ProcessWindowFunction | None = None,
    ) -> WindowFunction:
        """Fold the rows of a window by an `AggregateFunction`.

        The type of its accumulator is taken from its declaration, `AggregateFunction[…, accumulator, …]`, if it is
        not given.
        """
        type_ = accumulator_type_of(aggregate) if accumulator_type is None else accumulator_type
        return self._function(lambda name: AggregatingStateDescriptor(name, aggregate, type_), function)

    def process(self, function: ProcessWindowFunction, row_type: Any) -> WindowFunction:
        """Keep all rows of a window, which are of `row_type`, for a function that wants to see them."""
        if function is None:
            raise StateDeclarationError("process() needs a ProcessWindowFunction, got None", option="function")
        type_ = _stored_type(row_type)
        return self._function(lambda name: ListStateDescriptor(name, type_), function)

    def _function(
        self, contents: Callable[[str], StateDescriptor], function: ProcessWindowFunction | None
    ) -> WindowFunction:
        if function is not None and not isinstance(function, ProcessWindowFunction):
            what = f"a window's function is a ProcessWindowFunction, got {function!r}"
            raise StateDeclarationError(what, option="function")
        grid = self.grid()
        spec = WindowSpec(
            self.assigner,
            self.trigger,
            self.allowed_lateness,
            self.late_output,
            contents(self.contents_name()),
            function,
        )
        if self.assigner.is_merging:
            if function is not None and function.window_states:
                raise StateDeclarationError(
                    f"{type(function).__qualname__} has window_states, and {type(self.assigner).__name__} merge: what "
                    f"becomes of the states of windows that become one is not defined. Use global_states.",
                    option="window_states",
                )
            return MergingWindowFunction(spec)
        if grid is not None and spec.fires_at_end:
            return SlicedWindowFunction(spec, grid)
        return PlainWindowFunction(spec, grid)

    def contents_name(self) -> str:
        """The name of the state with the contents: those stored in another way are not misread after a restart."""
        grid = self.grid()
        return MERGING_CONTENTS if self.assigner.is_merging else CONTENTS if grid is None else sliced_names(grid)[0]

    def grid(self) -> SliceGrid | None:
        """The slices that windows share, if they can."""
        if isinstance(self.assigner, SlidingWindows) and not self.trigger.may_purge:
            return self.assigner.grid()
        return None


def _stored_type(row_type: Any) -> Any:
    return row_type.row_class if isinstance(row_type, RowType) else row_type


def accumulator_type_of(function: AggregateFunction[Any, Any, Any]) -> Any:
    """The accumulator type that an aggregate function was declared with.

    >>> class Longest(AggregateFunction[str, str, int]):
    ...     def create_accumulator(self): return ""
    ...     def add(self, row, longest): return max(row, longest, key=len)
    ...     def get_result(self, longest): return len(longest)
    ...     def merge(self, one, other): return max(one, other, key=len)
    >>> accumulator_type_of(Longest())
    <class 'str'>
    """
    for base in type(function).__mro__:
        for declared in vars(base).get("__orig_bases__", ()):
            if get_origin(declared) is AggregateFunction:
                accumulator = get_args(declared)[1]
                if not isinstance(accumulator, TypeVar):
                    return accumulator
    raise StateDeclarationError(
        f"the accumulator type of {type(function).__qualname__} is unknown: declare the class as "
        f"AggregateFunction[row type, accumulator type, result type], or give accumulator_type",
        option="accumulator_type",
    )
