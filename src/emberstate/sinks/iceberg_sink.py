"""`iceberg`: an Iceberg table, through `pyiceberg`, without Java.

Appending: tasks put a Parquet file per part below the table's location, the stored file itself where it can be linked.
One commit of the driver then adds them all. Upserting: the driver's process merges the rows. Either commit also sets a
property of the table, named after the origin, to the batch: unlike a snapshot's summary, it outlives snapshots.

Invariants
1. A commit is made on the snapshot in whose metadata the property was compared, or not at all: `pyiceberg` would rebase
   it, so its refresh is refused. If another one was faster, the table is loaded and compared again.
2. No data file is deleted here: who cannot tell whether a commit happened must not.

Thread safety: as `Sink`. Any number of processes may deliver the same batch.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.parquet_outputs import fits_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.adoption import file_mode, write_part
from emberstate.sinks.arguments import column_names
from emberstate.sinks.extras import needed
from emberstate.sinks.interface import Delivery, Sink, Start
from emberstate.sinks.parts import Part
from emberstate.sinks.upsert import check_keys, last_rows

#: How often a commit is tried that others were faster with.
_TRIES: Final = 20
_MARK: Final = "emberstate.delivered."
_FILE: Final = "file://"


class _Changed(Exception):
    """Another commit was faster."""


class IcebergSink(Sink):
    """An Iceberg table."""

    promise = "exactly-once"

    def __init__(self, catalog: str, table: str, properties: Mapping[str, str], merge: Sequence[str]) -> None:
        if not isinstance(catalog, str):
            raise StateDeclarationError(
                f"catalog: expected the name of a catalogue, which the sink opens itself, got {catalog!r:.200}. Give "
                f"its name, and its properties as properties={{…}}.",
                option="catalog",
                found=type(catalog).__name__,
            )
        self._catalog = catalog
        self._name = table
        self._properties = dict(properties)
        self._merge = column_names("merge", merge)
        needed("pyiceberg", "iceberg")

    def __repr__(self) -> str:
        by = f", merge={list(self._merge)}" if self._merge else ""
        return f"iceberg({self._catalog!r}, {self._name!r}{by})"  # properties have credentials

    def check(self, start: Start) -> None:
        """Create the table if there is none; raise if it cannot take the rows."""
        check_keys(self._merge, start.row_type, self)
        if not fits_parquet(start.row_type):
            raise self._wrong_columns(start.row_type, "Parquet does not hold them")
        try:
            table = self._open().create_table_if_not_exists(self._name, arrow_schema(start.row_type))
        except Exception as error:
            raise SinkError(
                f"{self!r} cannot open or create its table: {type(error).__name__}: {error!s:.500}. Check the "
                f"catalogue's name and properties, its credentials, and that the namespace of the table exists.",
                option="catalog",
                found=type(error).__name__,
            ) from error
        self._check_table(table, start.row_type)
        try:
            data = self._data(table)
            data.mkdir(parents=True, exist_ok=True)
            probe = data / f"_probe.{secrets.token_hex(8)}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise SinkError(
                f"{self!r} cannot write below the table's location: {error}. Let this user create files there.",
                option="table",
                path=table.location(),
                found=error.strerror,
            ) from error

    def deliver(self, delivery: Delivery) -> None:
        """Commit the batch, unless the table's property says that it, or a later one, was delivered."""
        if not delivery.rows:
            return
        mark, catalog = f"{_MARK}{delivery.origin.id}", self._open()
        conflict = needed("pyiceberg.exceptions", "iceberg").CommitFailedException
        added: list[str] | None = None
        merged: Any = None
        for _ in range(_TRIES):
            table = catalog.load_table(self._name)
            if int(table.properties.get(mark, -1)) >= delivery.batch:
                return
            table.refresh = _refuse  # invariant 1
            try:
                if self._merge:
                    merged = last_rows(delivery, self._merge, self) if merged is None else merged
                elif added is None:
                    self._check_table(table, delivery.row_type)
                    added = self._add(delivery, table)
                    continue  # time has passed: compare again
                with table.transaction() as transaction:
                    _set(transaction, table, {mark: str(delivery.batch)})
                    if added is None:
                        transaction.upsert(merged, join_cols=list(self._merge))
                    else:
                        transaction.add_files(added, check_duplicate_files=False)  # their names are new
                return
            except (_Changed, conflict):
                continue
        raise SinkError(
            f"{self!r}: others committed to the table {_TRIES} times while batch {delivery.batch} waited. Start again "
            f"when fewer write to it.",
            option="table",
            batch=delivery.batch,
        )

    def _open(self) -> Any:
        return needed("pyiceberg.catalog", "iceberg").load_catalog(self._catalog, **self._properties)

    def _add(self, delivery: Delivery, table: Any) -> list[str]:
        data = self._data(table)
        name = f"part-{delivery.origin.id}-{delivery.batch}"
        return delivery.in_tasks(_Write(str(data), name, file_mode(data)))

    def _data(self, table: Any) -> Path:
        """The directory of the table's data files."""
        location = table.location()
        if "://" in location and not location.startswith(_FILE):
            raise SinkError(
                f"{self!r}: the table is at {location}; expected a local or shared file system: tables in object "
                f"stores are not supported yet. Write a function that uses Spark's Iceberg.",
                option="table",
                found=location,
            )
        return Path(location.removeprefix(_FILE)) / "data"

    def _check_table(self, table: Any, row_type: RowType) -> None:
        """Raise if the table has other columns, or is partitioned."""
        convert = needed("pyiceberg.io.pyarrow", "iceberg").pyarrow_to_schema
        theirs = {field.name: field for field in table.schema().fields}
        try:
            wanted = convert(arrow_schema(row_type), name_mapping=table.schema().name_mapping)
        except Exception as error:  # a column that the table has not
            raise self._wrong_columns(row_type, f"found {table.schema()}: {error!s:.200}") from None
        ours = {field.name: field for field in wanted.fields}
        wrong = ours.keys() ^ theirs.keys() or {
            name
            for name, field in ours.items()
            if field.field_type != theirs[name].field_type or (theirs[name].required and not field.required)
        }
        if wrong:
            raise self._wrong_columns(row_type, f"{sorted(wrong)} differ: found {table.schema()}")
        if not self._merge and not table.spec().is_unpartitioned():
            raise SinkError(
                f"{self!r}: the table is partitioned, {table.spec()}, and a stored file has rows of several "
                f"partitions. Give a table without partitions, or merge by a key.",
                option="table",
                found=str(table.spec()),
            )

    def _wrong_columns(self, row_type: RowType, why: str) -> SinkError:
        return SinkError(
            f"{self!r}: the columns of the output, ({row_type.schema}), are not those of the table: {why}. Give the "
            f"stage the schema of the table, or give another table.",
            option="schema",
            found=row_type.schema,
        )


def _refuse() -> NoReturn:
    raise _Changed


def _set(transaction: Any, table: Any, properties: dict[str, str]) -> None:
    """Set properties in a commit that holds for this snapshot alone, also if it changes no rows."""
    update = needed("pyiceberg.table.update", "iceberg")
    snapshot = table.current_snapshot()
    unchanged = update.AssertRefSnapshotId(snapshot_id=None if snapshot is None else snapshot.snapshot_id, ref="main")
    transaction._apply((update.SetPropertiesUpdate(updates=properties),), (unchanged,))


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    """Puts a part into the directory of the table's data; returns the file's address."""

    data: str
    name: str
    mode: int

    def __call__(self, part: Part) -> str:
        name = f"{self.name}-{part.number:05}-{secrets.token_hex(8)}"  # an attempt's own
        [file] = write_part(part, Path(self.data), name, self.mode)
        return f"{_FILE}{os.fspath(file)}"


def iceberg(
    catalog: str, table: str, *, properties: Mapping[str, str] | None = None, merge: Sequence[str] = ()
) -> IcebergSink:
    """A sink that appends to an Iceberg table or, with `merge`, upserts by these columns. Needs the extra `iceberg`.

    Exactly-once: the commit of a batch sets a property of the table, which is named after the origin and survives the
    expiry of snapshots. The catalogue's `properties` are those of `pyiceberg`, which also finds them by the name
    `catalog` in `.pyiceberg.yaml`. The table is created if there is none; its namespace must be there. Several jobs may
    write to it. Appended files of more than 64 KiB are the stored output itself, by a hard link, where table and
    checkpoints are on one file system; no rows go through the driver.

    An upsert updates the row whose columns `merge` are equal, or inserts one; of several rows of a batch with the same
    ones, the last counts. It runs in the driver's process, in memory, with up to 256 MiB of stored rows per batch; a
    larger batch is rejected. A null in these columns is rejected, too.

    For tables on a local or shared file system. Files that a killed driver leaves are orphans, for Spark's
    `remove_orphan_files`.

    >>> import emberstate as es
    >>> es.Pipeline("cards", es.MemoryStateBackend()).sink(es.sinks.iceberg("prod", "shop.totals"))  # doctest: +SKIP
    Pipeline('cards', stages=[], sinks={'main': ["iceberg('prod', 'shop.totals'): exactly-once"]})
    """
    return IcebergSink(catalog, table, properties or {}, merge)
