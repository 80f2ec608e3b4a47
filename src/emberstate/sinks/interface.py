"""`Sink`: where a pipeline's output goes. `Delivery` is one batch of one output on its way there.

Invariants of a sink
1. `deliver` may be called again with a batch that it has delivered: the driver died, or another sink failed. Parts,
   rows and identity are the same then. A sink that promises "exactly-once" changes nothing the second time.
2. It tells deliveries apart by `delivery.origin` and `delivery.batch` together, never by the batch alone: a new query
   counts from 0 again.
3. What `deliver` did is durable when it returns: then Spark notes the batch as done, and it never comes again.
4. A driver may be paused in `deliver` and resume after another has taken the job over and delivered later batches. What
   it still does must destroy nothing.
5. A function given to `in_tasks` may run more than once for a part, and two attempts at the same time: Spark repeats
   tasks. What an attempt that is not the last one leaves must not count.

Thread safety: one delivery at a time, on the thread of the batches; functions of `in_tasks` run in other processes.
"""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.parts import Part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True)
class Origin:
    """Where batches come from; with the number of a batch, the identity of a delivery.

    >>> origin = Origin("f00d", "cards", "9b1e", "totals", "main")
    >>> origin.id
    '240ef8aa2d1625eda2ca4677d993558a'
    """

    #: The random id of the checkpoint location: another one if the location was deleted and the job began again.
    location: str
    job: str
    #: The id of Spark's query, which numbers the batches.
    query: str
    stage: str
    #: The output of the stage: "main", or the name of a side output.
    output: str

    @property
    def id(self) -> str:
        """All of it as 32 hexadecimal digits, for markers, application ids and the like."""
        parts = json.dumps([self.location, self.job, self.query, self.stage, self.output])
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """What a sink can check its target against before a pipeline starts."""

    spark: SparkSession
    job: str
    stage: str
    output: str
    row_type: RowType
    #: The origin of the last batch that the job committed; None if it has committed none.
    before: Origin | None


class Delivery(abc.ABC):
    """One batch of one output."""

    def __init__(self, origin: Origin, batch: int, row_type: RowType, parts: Sequence[Part]) -> None:
        self.origin = origin
        self.batch = batch
        #: The columns; their text, for Spark, is `row_type.schema`.
        self.row_type = row_type
        #: One per slot that emitted something. Stored: the same in every delivery of the batch.
        self.parts = tuple(parts)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """The size of the stored rows, in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns, for Arrow."""
        return arrow_schema(self.row_type)

    @abc.abstractmethod
    def frame(self) -> DataFrame:
        """The rows as a DataFrame, which reads the stored parts each time it is evaluated."""

    @abc.abstractmethod
    def in_tasks(self, function: Callable[[Part], R]) -> list[R]:
        """Call a function with every part, in Spark's tasks, and return what it returned, in the order of the parts.

        If all parts together are small, the function is called in the driver's process, without a Spark job.
        The function and its results are pickled. It may run more than once for a part, see the invariants.
        """


class Sink(abc.ABC):
    """Where output goes. `Pipeline.sink` takes one, or several.

    A sink of one's own says what it promises, checks its target and delivers:

    >>> class Counter(Sink):
    ...     promise = "exactly-once"
    ...
    ...     def __init__(self):
    ...         self.seen = {}
    ...
    ...     def deliver(self, delivery):
    ...         self.seen[delivery.origin.id, delivery.batch] = delivery.rows
    ...
    ...     def __repr__(self):
    ...         return "Counter()"
    >>> import emberstate as es
    >>> es.Pipeline("cards", es.MemoryStateBackend()).sink(Counter())
    Pipeline('cards', stages=[], sinks={'main': ['Counter(): exactly-once']})
    """

    #: "exactly-once", or "at-least-once: " and why; with what it depends on.
    promise: str

    def check(self, start: Start) -> None:
        """Raise `SinkError` if the target cannot be delivered to; called before the pipeline's first batch.

        Reads, and writes at most what tells that writing is allowed.
        """
        return

    @abc.abstractmethod
    def deliver(self, delivery: Delivery) -> None:
        """Deliver a batch, or do nothing if it has been delivered; durable on return."""

    @abc.abstractmethod
    def __repr__(self) -> str:
        """The sink as it was written, without secrets: messages and `repr(pipeline)` show it."""
