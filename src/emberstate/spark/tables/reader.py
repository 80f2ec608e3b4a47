"""Reads a table of state: the driver plans, and each Spark task reads its key groups.

Filters are not pushed down: in Spark 4.3 a filter that a Python source accepts leaks into later queries of the same
DataFrame. The options `key` and `key_groups` narrow what is read.

Thread safety: Spark copies a reader to every task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from emberstate.checkpoint.read.listing import list_states
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.scan import StateScan, choose_operator, plan_scan
from emberstate.codec.key_text import key_of_json
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.spark.tables.options import READ_OPTIONS, check_options, checkpoint_number, key_groups, needed, number
from emberstate.spark.tables.types import arrow_schema, fitted, spark_schema
from emberstate.storage.uri import open_storage

_FOR_STATES = ("key", "key_groups", "changes_since", "partitions")


@dataclasses.dataclass(frozen=True, slots=True)
class TablePlan:
    """What a DataFrame over a table of state reads, the same in every evaluation."""

    location: str
    content: StateScan | pa.Table
    #: The number of partitions.
    partitions: int

    @property
    def schema(self) -> StructType:
        """The columns."""
        return spark_schema(self.content.schema)


def plan_table(options: Mapping[str, str]) -> TablePlan:
    """The plan for these options.

    Raises:
        EmberstateError: an option is invalid, or names something that does not exist.
    """
    given = check_options(options, READ_OPTIONS)
    location = open_storage(needed(given, "path", "the location of the checkpoints")).describe()
    checkpoint, savepoint = checkpoint_number(given), given.get("savepoint")
    if savepoint is not None and "checkpoint" in given:
        what = "options checkpoint and savepoint are both given: give one of them"
        raise StateDeclarationError(what, option="savepoint")
    state, operator = given.get("state"), given.get("operator")
    if state is None:
        pointless = [name for name in _FOR_STATES if name in given]
        if pointless:
            raise StateDeclarationError(
                f"options {pointless} need the option state; without it, the table lists the states",
                option="state",
            )
        with CheckpointReader.open(location, checkpoint, savepoint=savepoint) as reader:
            states = list_states(reader)
            if operator is not None:
                name = choose_operator(reader, operator).name
                states = states.filter(pa.compute.equal(states["operator"], name))
        return TablePlan(location, states, 1)
    since = number(given, "changes_since", 1)
    if since is not None and savepoint is not None:
        what = "option changes_since goes with checkpoint, not with savepoint"
        raise StateDeclarationError(what, option="changes_since")
    key = None
    if "key" in given:
        with CheckpointReader.open(location, checkpoint, savepoint=savepoint) as reader:
            key = key_of_json(given["key"], KeySchema(choose_operator(reader, operator).key_schema))
            checkpoint = None if savepoint is not None else reader.manifest.number
    scan = plan_scan(
        location,
        state,
        operator=operator,
        checkpoint=checkpoint,
        savepoint=savepoint,
        since=since,
        key=key,
        key_groups=key_groups(given),
    )
    parts = number(given, "partitions", 1) or scan.parts
    return TablePlan(location, scan, max(1, min(parts, len(scan.key_groups))))


class KeyGroups(InputPartition):
    """The key groups that one task reads."""

    def __init__(self, groups: tuple[int, ...]) -> None:
        super().__init__(groups)


class TableReader(DataSourceReader):
    """Reads a planned table."""

    def __init__(self, plan: TablePlan, schema: StructType) -> None:
        """`schema` has some or all of the plan's columns."""
        self._plan = plan
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """The parts, one per task."""
        content, count = self._plan.content, self._plan.partitions
        if isinstance(content, pa.Table):
            return [InputPartition(None)]
        return [KeyGroups(content.groups_of_part(part, count)) for part in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        content = self._plan.content
        if isinstance(content, pa.Table):
            batches = iter(content.to_batches())
        else:
            batches = content.batches(self._plan.location, partition.value)
        for batch in batches:
            yield fitted(batch, self._schema)
