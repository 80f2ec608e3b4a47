"""Writes a savepoint of one state from a DataFrame, by `df.write.format("emberstate")`, with these options:

    path              the location of the savepoint; also the argument of save()
    savepoint         its name
    job, operator     the job and the operator of the state
    state             the state's name
    kind              value (the default), list or map
    key               the key column, or several with commas between them
    value             the column of values, lists or maps
    user_key          for a map with a row per user key: the column of user keys; kind is map then
    max_parallelism   the number of key groups, 128 unless given

The state's type follows from the column: string is str, bigint int, and so on; for classes use `bootstrap_savepoint`.
The mode is append; a write makes a new savepoint and never changes one.

Rows are not shuffled: tasks write deltas of any key groups, and the commit rejects keys that came twice. A write that
fails leaves no savepoint; a task that still runs then may leave a file, which the next savepoint of that name removes.
`bootstrap_savepoint` shuffles rows to their key groups first, which is faster to start from: prefer it for large
state.

Thread safety: Spark's; tasks, commit and abort run in processes of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from emberstate.checkpoint.manifest.model import StateFile
from emberstate.checkpoint.offline.draft import DeltaPartWriter, begin_draft, commit_draft, discard_draft
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM
from emberstate.runtime.bootstrap.bootstrap import fill
from emberstate.runtime.bootstrap.plan import BootstrapPlan, plan_bootstrap
from emberstate.runtime.rows.row import RowType
from emberstate.spark.tables.options import WRITE_OPTIONS, check_options, kind_of_state, needed, number
from emberstate.spark.tables.types import check_key_types, row_type, state_type
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from emberstate.storage.uri import open_storage


@dataclasses.dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task wrote."""

    files: tuple[StateFile, ...]


class SavepointWriter(DataSourceArrowWriter):
    """Writes a planned savepoint."""

    def __init__(self, location: str, plan: BootstrapPlan) -> None:
        self._location = location
        self._plan = plan

    @staticmethod
    def plan(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> SavepointWriter:
        """The writer for these options and a DataFrame of `schema`; raises if they do not fit."""
        given = check_options(options, WRITE_OPTIONS)
        if overwrite:
            raise StateDeclarationError(
                'savepoints are never overwritten: write a new one with .mode("append"), or delete the old one first',
                option="mode",
            )
        storage = open_storage(needed(given, "path", "the location of the savepoint"))
        name = needed(given, "savepoint", "the name of the savepoint")
        keys = [column.strip() for column in needed(given, "key", "the name of the key column").split(",")]
        columns = [needed(given, "value", "the name of the column with the state's values")]
        if "user_key" in given:
            columns.insert(0, given["user_key"])
        chosen = _chosen(schema, [*keys, *columns])
        check_key_types(chosen, keys)
        rows = row_type(chosen)
        state = needed(given, "state", "the name of the state")
        plan = plan_bootstrap(
            rows,
            name,
            job=needed(given, "job", "the name of the job"),
            operator=needed(given, "operator", "the name of the operator"),
            states=[_descriptor(state, kind_of_state(given), rows, columns)],
            key=keys,
            columns={state: columns[0] if len(columns) == 1 else (columns[0], columns[1])},
            max_parallelism=number(given, "max_parallelism", 1) or DEFAULT_MAX_PARALLELISM,
        )
        begin_draft(storage, plan.draft)
        return SavepointWriter(storage.describe(), plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of one task."""
        writer = DeltaPartWriter(open_storage(self._location), self._plan.draft)
        fill(writer, self._plan, iterator)
        return WrittenFiles(tuple(writer.finish()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the savepoint, after all tasks have succeeded."""
        files = [file for message in messages if isinstance(message, WrittenFiles) for file in message.files]
        commit_draft(open_storage(self._location), self._plan.draft, files)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files, after a task has failed."""
        discard_draft(open_storage(self._location), self._plan.draft)


def _chosen(schema: StructType, names: list[str]) -> StructType:
    there = schema.fieldNames()
    for name in names:
        if name not in there:
            raise StateDeclarationError(f"the DataFrame has no column {name!r}; it has {there}", column=name)
    return StructType([schema[name] for name in dict.fromkeys(names)])


def _descriptor(name: str, kind: str, rows: RowType, columns: list[str]) -> StateDescriptor:
    """A state that can hold the columns."""
    types = [rows.columns[rows.position(column)].type for column in columns]
    of_keys = kind == "map" and len(columns) == 2
    if len(columns) == 2 and not of_keys:
        what = f"option user_key is for kind map, got kind {kind}: leave one of them out"
        raise StateDeclarationError(what, option="user_key")
    expected = {"list": "array", "map": "map"}.get(kind)
    if expected is not None and not of_keys and types[0].kind != expected:
        raise StateDeclarationError(
            f"a {kind} state takes a column of {expected}s, column {columns[0]!r} is {types[0].name}",
            column=columns[0],
            expected=expected,
            found=types[0].name,
        )
    held: list[Any] = [
        state_type(type_, f"column {column!r}")
        for column, types_of_column in zip(columns, types, strict=True)
        for type_ in (types_of_column.items if expected is not None and not of_keys else (types_of_column,))
    ]
    if kind == "map":
        return MapStateDescriptor(name, held[0], held[1])
    return ListStateDescriptor(name, held[0]) if kind == "list" else ValueStateDescriptor(name, held[0])
