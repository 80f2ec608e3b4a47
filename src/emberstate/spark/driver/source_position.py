"""The query of a micro-batch, and its position in the source, by which a batch that is sent again is recognised.

Spark writes the offsets of a batch to the query's own log before it calls `foreachBatch`; the text of that entry is the
position. Local properties of the thread that Spark calls name the query. A thread that the user's function has started
does not inherit them: there the query is found by the frame's session, which Spark makes for each run of a query.
A batch of no query, as when a pipeline is called by hand, has its number as position.

Thread safety: any thread of the driver.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import LifecycleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_HAND = "called by hand"

#: The trait of Spark's operators that have a state store.
_STATEFUL: Final = "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator"


@dataclasses.dataclass(frozen=True, slots=True)
class SourcePosition:
    """The query of a batch, and its end in the source."""

    query: str
    #: The run of the query.
    run: str
    #: The offsets at the batch's end, one per source, as JSON.
    offsets: str
    #: Spark's execution of the query, in the JVM; None for a batch of no query.
    execution: Any = dataclasses.field(default=None, compare=False, repr=False)


class SourcePositions:
    """Finds the positions of batches. It keeps the query of the last one: to find it takes many calls into the JVM."""

    def __init__(self) -> None:
        self._known: _Query | None = None

    def of(self, spark: SparkSession, batch: int) -> SourcePosition:
        """The position of the batch that this thread was called with; `spark` is the session of its frame."""
        context = spark.sparkContext
        query = context.getLocalProperty("sql.streaming.queryId")
        run = context.getLocalProperty("spark.jobGroup.id")
        found = self._known
        if found is None or (found.ident, found.run) != (query, run) or not found.is_active:
            found = self._known = _find(spark, query, run)
        if found is None:
            if query is None:
                return SourcePosition(BY_HAND, BY_HAND, f"batch {batch}")
            raise LifecycleError(
                f"run {run} of query {query} was stopped: batch {batch} was not begun", batch=batch
            )
        entry = found.execution.offsetLog().get(batch)
        if not entry.isDefined():
            raise LifecycleError(
                f"query {found.ident} has no offsets of batch {batch} in its checkpoint: the batch was not begun",
                batch=batch,
            )
        return SourcePosition(found.ident, found.run, _offsets(entry.get()), found.execution)


@dataclasses.dataclass(frozen=True, slots=True)
class _Query:
    """A run of a query."""

    ident: str
    run: str
    #: Spark's execution of the run, and those of all that are active, in the JVM.
    execution: Any
    active: Any

    @property
    def is_active(self) -> bool:
        """Whether the run goes on."""
        return bool(self.active.containsValue(self.execution))


def _find(spark: SparkSession, query: str | None, run: str | None) -> _Query | None:
    """The active run of a query; of none, that of the frame's session."""
    active = spark._jsparkSession.sharedState().activeStreamingQueries()
    for execution in active.values():
        if execution is None:
            continue  # it has ended
        ident, its_run = str(execution.id().toString()), str(execution.runId().toString())
        if query is None and execution.sparkSessionForStream().equals(spark._jsparkSession):
            return _Query(ident, its_run, execution, active)
        if (ident, its_run) == (query, run):
            return _Query(ident, its_run, execution, active)
    return None


def offsets_before(position: SourcePosition, batch: int) -> str | None:
    """The offsets that the batch begins at; None for the first batch of a query, or a batch of no query."""
    entry = None if position.execution is None or batch == 0 else position.execution.offsetLog().get(batch - 1)
    return _offsets(entry.get()) if entry is not None and entry.isDefined() else None


def has_stateful_operator(spark: SparkSession, position: SourcePosition) -> bool:
    """Whether the query has an operator of Spark's that keeps state, such as `dropDuplicates`.

    The frame of `foreachBatch` does not show it; the plan of the query's present batch does.
    """
    if position.execution is None:
        return False
    jvm: Any = spark.sparkContext._jvm
    nodes = [position.execution.lastExecution().sparkPlan()]
    while nodes:
        node = nodes.pop()
        if jvm.py4j.reflection.TypeUtil.isInstanceOf(_STATEFUL, node):
            return True
        nodes += items(node.children())
    return False


def evaluate(position: SourcePosition) -> None:
    """Run the query's present batch up to `foreachBatch` and drop its rows: its operators commit their state."""
    position.execution.lastExecution().toRdd().count()


def _offsets(entry: Any) -> str:
    """The offsets of all sources as a JSON list of texts."""
    found = entry.offsets()
    each = [found.apply(number) for number in range(found.size())]
    return json.dumps([one.get().json() if one.isDefined() else None for one in each])


def items(collection: Any) -> Iterator[Any]:
    """The items of a Scala collection."""
    found = collection.iterator()
    while found.hasNext():
        yield found.next()
