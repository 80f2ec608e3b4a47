"""`register_tables`: from here on a session knows `spark.read.format("emberstate")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_tables(spark: SparkSession) -> None:
    """Let a session read state as tables, and write savepoints, by the format "emberstate"; again does nothing.

    See `table_source` for the options.
    """
    from emberstate.spark.table_source import EmberstateDataSource

    spark.dataSource.register(EmberstateDataSource)
