"""Which query a micro-batch is of, and its position in the source: what tells a batch that comes again from one
that pretends to be it.

Spark writes the offsets of a batch to the query's own log before it calls `foreachBatch`; the text of that entry is the
position. Batches that no query sends, as when a pipeline is called by hand, have a position by their number.

Thread safety: the thread that Spark calls `foreachBatch` on, whose local properties name the query.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from emberstate.errors import LifecycleError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_HAND = "called by hand"


@dataclasses.dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where a batch comes from."""

    query: str
    #: Of all runs of the query, the one that this batch is of.
    run: str
    #: The offsets at the batch's end, one per source, as JSON.
    offsets: str


def source_position(spark: SparkSession, batch: int) -> SourcePosition:
    """The position of the batch that this thread was called for."""
    context = spark.sparkContext
    query = context.getLocalProperty("sql.streaming.queryId")
    if query is None:
        return SourcePosition(BY_HAND, BY_HAND, f"batch {batch}")
    run = context.getLocalProperty("spark.jobGroup.id")
    assert context._jvm is not None
    ident = context._jvm.java.util.UUID.fromString(query)
    execution = spark._jsparkSession.sharedState().activeStreamingQueries().get(ident)
    if execution is None or execution.runId().toString() != run:
        raise LifecycleError(
            f"run {run} of query {query} was stopped: batch {batch} is not begun, and nothing of it is done"
        )
    entry = execution.offsetLog().get(batch)
    if not entry.isDefined():
        raise LifecycleError(f"query {query} has no offsets of batch {batch} in its checkpoint: nothing is done")
    return SourcePosition(query, str(run), _offsets(entry.get()))


def _offsets(entry: object) -> str:
    """The offsets of all sources as a JSON list of texts."""
    texts = []
    offsets = entry.offsets().iterator()  # type: ignore[attr-defined]
    while offsets.hasNext():
        one = offsets.next()
        texts.append(one.get().json() if one.isDefined() else None)
    return json.dumps(texts)
