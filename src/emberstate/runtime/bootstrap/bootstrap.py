"""Bootstrapping: a savepoint made from a table, for a job to start from. `plan` says which columns become which states.

Thread safety: any thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.offline.draft import (
    BasePartWriter,
    DeltaPartWriter,
    commit_draft,
    drafting,
)
from emberstate.errors import EmberstateError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM
from emberstate.runtime.bootstrap.plan import (
    BootstrapPlan,
    Columns,
    RowContents,
    States,
    needed_columns,
    plan_bootstrap,
)
from emberstate.runtime.rows.arrow_rows import columns_of, row_type_of
from emberstate.runtime.rows.row import RowType
from emberstate.storage.interface import Storage
from emberstate.storage.uri import open_storage

_BATCH_ROWS = 10_000


def bootstrap_savepoint(
    table: pa.Table,
    location: Storage | str | os.PathLike[str],
    name: str,
    *,
    job: str,
    operator: str,
    states: States,
    key: str | Sequence[str],
    columns: Columns | None = None,
    max_parallelism: int = DEFAULT_MAX_PARALLELISM,
    written_at: datetime | None = None,
) -> Manifest:
    """Make savepoint `name` at a location from a table, for `operator` of `job`.

    `states` is the function that is to run, or descriptors. `key` names the key columns. `columns` says for each
    state which column has its content, or for a map which two have user keys and values; left out, each column but
    the key's is for the state of its name. `written_at` is when everything counts as written, for times to live: now,
    unless given.

    Raises:
        StateDeclarationError: columns, states and key do not go together.
        StateTypeError: a value is not of its state's type, or something is given twice; no savepoint is made.
        StorageExistsError: there is a savepoint of that name.

    >>> import tempfile
    >>> from emberstate.checkpoint.read.read_state import read_state
    >>> from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
    >>> cards = pa.table({"card": ["ann", "bob"], "total": [9.5, None], "seen": [["cafe"], ["shop"]], "n": [[2], [1]]})
    >>> seen = pa.table({"card": ["ann", "ann"], "merchant": ["cafe", "shop"], "visits": [2, 1]})
    >>> with tempfile.TemporaryDirectory() as location:
    ...     made = bootstrap_savepoint(
    ...         seen, location, "boot", job="cards", operator="repeated-card", key="card",
    ...         states=[MapStateDescriptor("seen", str, int)], columns={"seen": ("merchant", "visits")},
    ...     )
    ...     read_state(location, "seen", savepoint="boot").to_pylist()[1]
    {'key': 'ann', 'namespace': '', 'user_key': 'shop', 'value': 1}
    """
    storage = location if isinstance(location, Storage) else open_storage(location)
    table = table.select(needed_columns(table.column_names, key, columns))
    plan = plan_bootstrap(
        row_type_of(table.schema),
        name,
        job=job,
        operator=operator,
        states=states,
        key=key,
        columns=columns,
        max_parallelism=max_parallelism,
        written_at=written_at,
    )
    with drafting(storage, plan.draft):
        writer = BasePartWriter(storage, plan.draft, plan.draft.all_groups)
        fill(writer, plan, _by_key_group(table, plan).to_batches(_BATCH_ROWS))
        return commit_draft(storage, plan.draft, writer.finish())


def fill(
    writer: BasePartWriter | DeltaPartWriter, plan: BootstrapPlan, batches: Iterable[pa.RecordBatch]
) -> None:
    """Give a writer of a part the rows of record batches."""
    contents = RowContents(plan)
    for batch in batches:
        for key, content in contents.read(batch):
            writer.add(key, content)


def _by_key_group(table: pa.Table, plan: BootstrapPlan) -> pa.Table:
    """The rows in the order of their key groups."""
    schema, count = plan.draft.key_schema, plan.draft.max_parallelism
    group_of, groups = schema.key_grouper(count), []
    for batch in table.select(list(plan.key_columns)).to_batches(_BATCH_ROWS):
        keys = RowType(plan.row_type.columns[plan.row_type.position(name)] for name in plan.key_columns)
        for values in zip(*columns_of(batch, keys), strict=True):
            key = values[0] if len(values) == 1 else values
            try:
                groups.append(group_of(schema.normalise(key)))
            except EmberstateError:
                groups.append(0)  # the error is raised, with its row, when the row is read
    return table.take(pc.sort_indices(pa.array(groups, pa.int32())))
