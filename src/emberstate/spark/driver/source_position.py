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


def source_position(spark: SparkSession, batch: int) -> SourcePosition:
    """The position of the batch that this thread was called with; `spark` is the session of its frame."""
    context = spark.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId")
    run = context.getLocalProperty("spark.jobGroup.id")
    execution = next((one for one in _active(spark) if _is_of(one, spark, query)), None)
    if query is None:
        if execution is None:
            return SourcePosition(BY_HAND, BY_HAND, f"batch {batch}")
        query, run = execution.id().toString(), execution.runId().toString()
    if execution is None or execution.runId().toString() != run:
        raise LifecycleError(
            f"run {run} of query {query} was stopped: batch {batch} was not begun", batch=batch
        )
    entry = execution.offsetLog().get(batch)
    if not entry.isDefined():
        raise LifecycleError(
            f"query {query} has no offsets of batch {batch} in its checkpoint: the batch was not begun", batch=batch
        )
    return SourcePosition(query, str(run), _offsets(entry.get()), execution)


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


def _active(spark: SparkSession) -> list[Any]:
    """The queries that run in the application, as Spark executes them."""
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    return [execution for execution in queries.values() if execution is not None]  # one may have ended


def _is_of(execution: Any, spark: SparkSession, query: str | None) -> bool:
    if query is not None:
        return str(execution.id().toString()) == query
    return bool(execution.sparkSessionForStream().equals(spark._jsparkSession))


def _offsets(entry: Any) -> str:
    """The offsets of all sources as a JSON list of texts."""
    return json.dumps([one.get().json() if one.isDefined() else None for one in items(entry.offsets())])


def items(collection: Any) -> Iterator[Any]:
    """The items of a Scala collection."""
    found = collection.iterator()
    while found.hasNext():
        yield found.next()
