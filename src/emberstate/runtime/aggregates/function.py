"""`aggregate_function`: from the declaration of a stage to the function that an operator runs, over partial rows.

>>> from emberstate import HeapKeyedStateBackend, KeySchema
>>> from emberstate.runtime.aggregates.names import count, max
>>> from emberstate.runtime.aggregates.partials import PartialRows
>>> from emberstate.runtime.operator.operator import KeyedOperator
>>> spec = AggregateSpec.of({"n": count(), "most": max("amount")}, "card string, amount int", ["card"])
>>> operator = KeyedOperator("totals", aggregate_function(spec), HeapKeyedStateBackend(KeySchema.from_python(str)))
>>> operator.open()
>>> operator.begin(processing_time=0)
>>> for row in (("ann", 3), ("bob", 1), ("ann", 2)):
...     operator.process(row[0], PartialRows(spec).of(row, None))
>>> operator.end().main
[('ann', 2, 3), ('bob', 1, 1)]
"""

from __future__ import annotations

from emberstate.runtime.aggregates.running import RunningAggregates
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.aggregates.windowed import windowed_aggregates
from emberstate.runtime.functions.function import KeyedProcessFunction


def aggregate_function(spec: AggregateSpec) -> KeyedProcessFunction:
    """The function of a stage; its input rows are of `spec.partial`, its output rows of `spec.output`."""
    return RunningAggregates(spec) if spec.window is None else windowed_aggregates(spec)
