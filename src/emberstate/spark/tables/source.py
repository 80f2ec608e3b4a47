"""The format "emberstate" of Spark: the state of any checkpoint as a table, and savepoints written from tables.

Reading, with these options:

    path            where the job keeps its checkpoints; also the argument of load()
    state           which state; `timers/…` for timers. Without it, the table lists the states
    operator        needed if there are several
    checkpoint      a number, or latest (the default); or else
    savepoint       the name of a savepoint
    key             one key only: JSON, such as "ann" with its quotes, or ["ann", 7]
    key_groups      some key groups only: "0-31", "3,5"
    changes_since   the number of an earlier checkpoint: what has changed since
    partitions      how many tasks read; by default one for every 16 MiB

load() finds the newest checkpoint and keeps its number: a DataFrame shows the same state however often it is evaluated.
The checkpoint is not pinned, since nothing tells when to release it; once it is collected, reading raises
CheckpointCollectedError.

For the options of writing see `tables.writer`. A session knows the format after `register_tables`.

Thread safety: Spark's; every method runs in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from emberstate.spark.tables.reader import TablePlan, TableReader, plan_table
from emberstate.spark.tables.types import check_chosen
from emberstate.spark.tables.writer import SavepointWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class EmberstateDataSource(DataSource):
    """The format; Spark makes an instance for every read or write."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)
        self._plan: TablePlan | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "emberstate"

    def schema(self) -> StructType:
        """The columns. The plan that they come from travels with this object to the readers."""
        return self._planned().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of these columns."""
        plan = self._planned()
        check_chosen(schema, plan.schema)
        return TableReader(plan, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer of a savepoint."""
        return SavepointWriter.plan(self.options, schema, overwrite=overwrite)

    def _planned(self) -> TablePlan:
        if self._plan is None:
            self._plan = plan_table(self.options)
        return self._plan


def register_tables(spark: SparkSession) -> None:
    """Let a session read state as tables, and write savepoints, by the format "emberstate". Idempotent.

        register_tables(spark)
        seen = spark.read.format("emberstate").option("state", "seen").load("s3://bucket/job")

    The options are those of docs/state-tables.md.
    """
    spark.dataSource.register(EmberstateDataSource)
