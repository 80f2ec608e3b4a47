"""`bootstrap_savepoint`: writes a savepoint from a DataFrame, for a job to start from.

Rows are shuffled to the task of their key group, and sorted by it; each task writes the base files of its key groups.
The tasks return the names of their files to the driver, so a task that ran twice counts once, and the driver creates
the savepoint's manifest as the last step. Files of tasks that still run after others have failed may stay; the next
savepoint of that name removes them.

Thread safety: the driver's thread; a task's code runs in its worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from emberstate.checkpoint.manifest.model import Manifest, StateFile
from emberstate.checkpoint.offline.draft import BasePartWriter, commit_draft, drafting
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, range_for_slot
from emberstate.runtime.bootstrap.bootstrap import fill
from emberstate.runtime.bootstrap.plan import BootstrapPlan, Columns, States, needed_columns, plan_bootstrap
from emberstate.runtime.rows.columns import KEY_GROUP_COLUMN, quoted
from emberstate.spark.driver.sql_text import key_group_text, slot_text
from emberstate.storage.uri import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART_COLUMN = "__part"


def bootstrap_savepoint(
    df: DataFrame,
    location: str | os.PathLike[str],
    name: str,
    *,
    job: str,
    operator: str,
    states: States,
    key: str | Sequence[str],
    columns: Columns | None = None,
    max_parallelism: int = DEFAULT_MAX_PARALLELISM,
    written_at: datetime | None = None,
    partitions: int | None = None,
) -> Manifest:
    """Write savepoint `name` at a location from a DataFrame: `emberstate.bootstrap_savepoint`, on a cluster.

    `partitions` is the number of tasks that write; by default Spark's default parallelism.

        bootstrap_savepoint(
            totals, "s3://bucket/job", "boot", job="visits", operator="visits", states=Visits(), key="card"
        )

    Raises:
        StateDeclarationError: columns, states and key do not fit together.
        StorageExistsError: there is a savepoint of that name.
        PythonException: a task failed. Its message says why: a value that is not of its state's type, a key that is
            given twice, a null key. No savepoint is made.
    """
    from emberstate.spark.tables.types import check_key_types, row_type

    keys = [key] if isinstance(key, str) else list(key)
    chosen = df.select(*(quoted(column) for column in needed_columns(df.columns, keys, columns)))
    check_key_types(chosen.schema, keys)
    plan = plan_bootstrap(
        row_type(chosen.schema),
        name,
        job=job,
        operator=operator,
        states=states,
        key=keys,
        columns=columns,
        max_parallelism=max_parallelism,
        written_at=written_at,
    )
    storage = open_storage(location)
    if not storage.shared:
        what = f"{storage.describe()} cannot be reached by Spark's tasks: use a path or s3://"
        raise StateDeclarationError(what, option="location")
    parts = min(max_parallelism, partitions or _default_partitions(df))
    with drafting(storage, plan.draft):
        write = _part_writer(storage.describe(), plan, parts)
        rows = _placed(chosen, plan, parts).mapInArrow(write, "files binary").collect()
        files = [file for row in rows for file in msgspec.msgpack.decode(bytes(row.files), type=list[StateFile])]
        if not rows:  # Spark runs no task for a DataFrame that it knows to be empty
            files = BasePartWriter(storage, plan.draft, plan.draft.all_groups).finish()
        return commit_draft(storage, plan.draft, files)


def _part_writer(
    location: str, plan: BootstrapPlan, parts: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        groups = range_for_slot(plan.draft.max_parallelism, parts, context.partitionId())
        writer = BasePartWriter(open_storage(location), plan.draft, groups)
        fill(writer, plan, batches)
        yield pa.record_batch({"files": pa.array([msgspec.msgpack.encode(writer.finish())], pa.binary())})

    return write


def _placed(df: DataFrame, plan: BootstrapPlan, parts: int) -> DataFrame:
    """The rows in the partitions of their key groups, in the order of key groups."""
    from pyspark.sql import functions as F

    keys = [quoted(name) for name in plan.key_columns]
    key_group = key_group_text(keys, plan.draft.key_schema, plan.draft.max_parallelism)
    return (
        df.withColumn(KEY_GROUP_COLUMN, F.expr(key_group))
        .withColumn(_PART_COLUMN, F.expr(slot_text(KEY_GROUP_COLUMN, parts, plan.draft.max_parallelism)))
        .repartitionById(parts, F.col(_PART_COLUMN))
        .sortWithinPartitions(KEY_GROUP_COLUMN)
        .drop(_PART_COLUMN, KEY_GROUP_COLUMN)
    )


def _default_partitions(df: DataFrame) -> int:
    return df.sparkSession.sparkContext.defaultParallelism
