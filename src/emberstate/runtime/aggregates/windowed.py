"""`windowed_aggregates`: from the declaration of a stage with windows to its function.

Thread safety: pure.
"""

from __future__ import annotations

import dataclasses

from emberstate.runtime.aggregates.accumulated import record_descriptor
from emberstate.runtime.aggregates.emission import CHANGED, Every
from emberstate.runtime.aggregates.emission_triggers import ChangedTrigger, EveryTrigger, WholeRowTrigger
from emberstate.runtime.aggregates.pane_aggregates import PlainAggregates, SlicedAggregates
from emberstate.runtime.aggregates.pane_assigner import PaneAssigner
from emberstate.runtime.aggregates.session_aggregates import MergingAggregates
from emberstate.runtime.aggregates.spec import WHOLE, AggregateSpec
from emberstate.runtime.aggregates.window_aggregates import WindowAggregates
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.runtime.windows.window_function import WindowFunction, WindowSpec
from emberstate.runtime.windows.windowed_rows import WindowedRows


def windowed_aggregates(given: AggregateSpec) -> WindowFunction:
    """The function of the partial rows of a stage with windows."""
    aggregates = given.with_whole_rows(False)
    assert aggregates.window is not None
    rows = _rows(aggregates.window, aggregates)
    grid = rows.grid()
    name = rows.contents_name()
    spec = WindowSpec(
        rows.assigner if aggregates.is_combinable and not aggregates.is_sessions else PaneAssigner.of(aggregates),
        rows.trigger,
        rows.allowed_lateness,
        rows.late_output,
        record_descriptor(name, aggregates),
        None,
    )
    made: WindowAggregates
    if rows.assigner.is_merging:
        made = MergingAggregates(spec)
    elif grid is not None and spec.fires_at_end:
        made = SlicedAggregates(spec, grid)
    else:
        made = PlainAggregates(spec, grid)
    made.given, made.aggregates, made.maker = given, aggregates, windowed_aggregates
    return made


def _rows(rows: WindowedRows, aggregates: AggregateSpec) -> WindowedRows:
    """The windows with the trigger that emits as declared."""
    emit, assigner = aggregates.emit, rows.assigner
    if emit == CHANGED:
        return dataclasses.replace(rows, trigger=ChangedTrigger())
    if isinstance(emit, Every):
        domain = TimeDomain.EVENT if assigner.is_event_time else TimeDomain.PROCESSING
        return dataclasses.replace(rows, trigger=EveryTrigger(emit.micros, domain))
    if rows.trigger == assigner.default_trigger():
        return rows
    return dataclasses.replace(rows, trigger=WholeRowTrigger(rows.trigger, aggregates.partial.position(WHOLE)))
