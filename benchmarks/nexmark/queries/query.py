"""What a query is: which rows it reads, its stages, the right answer as SQL, and the same in Spark's own operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import emberstate as es

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How far rows may come out of order, in all queries and in Spark's own.
LATENESS = "4 seconds"
#: The columns of a bid that most queries read.
BID_COLUMNS = "bid.auction auction, bid.bidder bidder, bid.price price, bid.dateTime dateTime"


class Query:
    """A query of NEXMark. Its docstring says which variant it is: the texts of the benchmark leave things open.

    Attributes:
        oracle: The answer as SQL for DuckDB, over the tables `person`, `auction` and `bid`; a row has also `batch`, the
            number of its file. Its columns are those of the pipeline's output.
        keys, version: Of a query whose output is updated: the row of a key with the largest version counts. No two
            rows of a key may have the same version. Otherwise every row counts.
        columns: Of bids, that the pipeline reads; Spark's optimiser finds out by itself what its own form needs.
        at_end: "close" if event time ends with the input; "wait" if the query has none.
        mode: Spark's output mode of its own form.
        not_in_spark: Why Spark's operators cannot express it; "" if they can.
        spark_is_exact: Whether rows of Spark's own form can be compared with the answer.
    """

    oracle: ClassVar[str]
    keys: ClassVar[tuple[str, ...]] = ()
    version: ClassVar[str] = ""
    columns: ClassVar[tuple[str, ...]] = ("auction", "bidder", "price", "dateTime")
    at_end: ClassVar[Literal["close", "wait"]] = "close"
    mode: ClassVar[Literal["append", "update"]] = "append"
    not_in_spark: ClassVar[str] = ""
    spark_is_exact: ClassVar[bool] = True
    #: The name of a second input, for `side`.
    side_name: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """Such as q5."""
        return type(self).__name__.lower()

    def rows(self, events: DataFrame) -> DataFrame:
        """What the pipeline reads of the events: `columns` of the bids, unless a query says otherwise."""
        return bids(events).select(*self.columns)

    def build(self, pipeline: es.Pipeline) -> es.Pipeline:
        """Add the stages."""
        raise NotImplementedError

    def result(self, output: DataFrame) -> DataFrame:
        """What the sink writes of a batch's output: all of it, unless a query says otherwise."""
        return output

    def spark(self, events: DataFrame) -> DataFrame:
        """The query in Spark's own operators."""
        raise NotImplementedError

    def side(self) -> Any:
        """The rows of the second input, as an Arrow table."""
        raise NotImplementedError


def bids(events: DataFrame, *more: str) -> DataFrame:
    """The bids, and further columns of them."""
    return events.where("event_type = 2").selectExpr(*BID_COLUMNS.split(", "), *more)


def timed(frame: DataFrame) -> DataFrame:
    """With Spark's watermark."""
    return frame.withWatermark("dateTime", LATENESS)
