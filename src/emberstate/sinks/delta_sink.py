"""`delta`: a Delta Lake table, through `deltalake`, without Java.

Appending: tasks put a Parquet file per part into the table's directory, the stored file itself where it can be linked.
One commit of the driver then adds them all, with the transaction id of the origin and the batch as its version.
Upserting: the driver's process merges the rows, in a commit with the same id.

Invariants
1. A commit is made on the version of the table in which the transaction's version was compared, or not at all: it is
   never rebased. If another one was faster, the table is loaded and compared again.
2. No file is deleted here: who cannot tell whether a commit happened must not. VACUUM deletes files that no commit
   names.

Thread safety: as `Sink`. Any number of processes may deliver the same batch.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from emberstate.errors import SinkError
from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.parquet_outputs import fits_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.adoption import file_mode, write_part
from emberstate.sinks.arguments import column_names, local_directory
from emberstate.sinks.extras import needed
from emberstate.sinks.interface import Delivery, Sink, Start
from emberstate.sinks.parts import Part
from emberstate.sinks.upsert import check_keys, last_rows

#: How often a commit is tried that others were faster with.
_TRIES: Final = 20
#: What a table may require of its writers beyond version 2, for files to be added as they are.
_FEATURES: Final = frozenset({"appendOnly", "deletionVectors", "invariants", "timestampNtz"})
#: Settings of a table that files added as they are, or markers, do not follow.
_SETTINGS: Final = ("delta.columnMapping.mode", "delta.constraints.", "delta.setTransactionRetentionDuration")


class DeltaSink(Sink):
    """A Delta table."""

    promise = "exactly-once"

    def __init__(self, path: str | os.PathLike[str], merge: Sequence[str]) -> None:
        self._path = local_directory(
            "delta",
            path,
            "Tables in object stores are not supported yet. Write a function that uses Spark's Delta: "
            "df.write.format('delta') with txnAppId and txnVersion.",
        )
        self._merge = column_names("merge", merge)
        self._delta = needed("deltalake", "delta")

    def __repr__(self) -> str:
        by = f", merge={list(self._merge)}" if self._merge else ""
        return f"delta({str(self._path)!r}{by})"

    def check(self, start: Start) -> None:
        """Create the table if there is none; raise if it cannot take the rows."""
        check_keys(self._merge, start.row_type, self)
        wanted = self._schema(start.row_type)
        failures = (OSError, self._delta.exceptions.DeltaError, self._delta.exceptions.DeltaProtocolError)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            probe = self._path / f"_probe.{secrets.token_hex(8)}"
            probe.touch()
            probe.unlink()
            table = self._delta.DeltaTable.create(str(self._path), wanted, mode="ignore")
            table.update_incremental()
        except failures as error:
            raise SinkError(
                f"{self!r} cannot open or create its table: {error}. Give the path of a Delta table, or one where this "
                f"user may create files.",
                option="path",
                path=str(self._path),
                found=type(error).__name__,
            ) from error
        self._check_table(table, wanted)

    def deliver(self, delivery: Delivery) -> None:
        """Commit the batch, unless its transaction's version, or a later one, is there."""
        if not delivery.rows:
            return
        added: list[Any] | None = None
        merged: Any = None
        for _ in range(_TRIES):
            table = self._delta.DeltaTable(str(self._path))
            done = table.transaction_version(delivery.origin.id)
            if done is not None and done >= delivery.batch:
                return
            properties = self._delta.CommitProperties(
                app_transactions=[self._delta.Transaction(delivery.origin.id, delivery.batch)],
                max_commit_retries=0,  # invariant 1
            )
            try:
                if self._merge:
                    merged = last_rows(delivery, self._merge, self) if merged is None else merged
                    self._upsert(table, merged, properties)
                else:
                    if added is None:
                        self._check_table(table, self._schema(delivery.row_type))
                        added = self._add(delivery)
                        continue  # time has passed: compare again
                    table.create_write_transaction(added, "append", table.schema(), commit_properties=properties)
                return
            except self._delta.exceptions.CommitFailedError as error:
                failed = error
        raise SinkError(
            f"{self!r}: others committed to the table {_TRIES} times while batch {delivery.batch} waited: {failed}. "
            f"Start again when fewer write to it.",
            option="path",
            batch=delivery.batch,
        )

    def _add(self, delivery: Delivery) -> list[Any]:
        """The files of a delivery, written below the table, as actions of a commit."""
        action = needed("deltalake.transaction", "delta").AddAction
        name = f"part-{delivery.origin.id}-{delivery.batch}"
        files = delivery.in_tasks(_Write(str(self._path), name, file_mode(self._path)))
        return [
            action(file, size, {}, time, True, json.dumps({"numRecords": rows})) for file, size, time, rows in files
        ]

    def _upsert(self, table: Any, rows: Any, properties: Any) -> None:
        same = " and ".join(f'target."{key}" = source."{key}"' for key in self._merge)
        merger = table.merge(
            rows, same, source_alias="source", target_alias="target", streamed_exec=False, commit_properties=properties
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def _schema(self, row_type: RowType) -> Any:
        """The columns for Delta; raises if it has no such types."""
        try:
            if not fits_parquet(row_type):
                raise ValueError("Parquet does not hold them")
            return self._delta.Schema.from_arrow(arrow_schema(row_type))
        except (ValueError, TypeError, self._delta.exceptions.DeltaError) as error:
            raise SinkError(
                f"{self!r}: the columns ({row_type.schema}) cannot be those of a Delta table: {error}. Change the "
                f"schema of the stage.",
                option="schema",
                found=row_type.schema,
            ) from None

    def _check_table(self, table: Any, wanted: Any) -> None:
        """Raise if the table has other columns, or asks for more of its writers than is done here."""
        ours = {field.name: field for field in wanted.fields}
        theirs = {field.name: field for field in table.schema().fields}
        wrong = ours.keys() ^ theirs.keys() or {
            name
            for name, field in ours.items()
            if field.type != theirs[name].type or (field.nullable and not theirs[name].nullable)
        }
        if wrong:
            raise SinkError(
                f"{self!r}: the table's columns {sorted(wrong)} are not those of the output: expected {wanted}, found "
                f"{table.schema()}. Give the stage the schema of the table, or give another table.",
                option="schema",
                expected=str(wanted),
                found=str(table.schema()),
            )
        metadata, protocol = table.metadata(), table.protocol()
        asked = [name for name in metadata.configuration if name.startswith(_SETTINGS)]
        asked += [f"partitioned by {name}" for name in metadata.partition_columns if not self._merge]
        asked += [f"a rule for column {name}" for name, field in theirs.items() if "delta.invariants" in field.metadata]
        version = protocol.min_writer_version
        if version > 2:
            asked += sorted(set(protocol.writer_features or [f"writer version {version}"]) - _FEATURES)
        if asked:
            raise SinkError(
                f"{self!r}: the table asks for what this sink does not do: {', '.join(asked)}. Give another table, or "
                f"write a function that uses Spark's Delta: df.write.format('delta') with txnAppId and txnVersion.",
                option="path",
                path=str(self._path),
                found=asked,
            )


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    """Puts a part into the table's directory; returns the file, its size, its time and its rows."""

    path: str
    name: str
    mode: int

    def __call__(self, part: Part) -> tuple[str, int, int, int]:
        name = f"{self.name}-{part.number:05}-{secrets.token_hex(8)}"  # an attempt's own
        [file] = write_part(part, Path(self.path), name, self.mode)
        found = file.stat()
        return file.name, found.st_size, int(found.st_mtime * 1000), part.rows


def delta(path: str | os.PathLike[str], *, merge: Sequence[str] = ()) -> DeltaSink:
    """A sink that appends to a Delta table or, with `merge`, upserts by these columns. Needs the extra `delta`.

    Exactly-once: every commit has the transaction id of the origin, and the batch as its version. The table is created
    if there is none. Several jobs may write to it. Appended files of more than 64 KiB are the stored output itself, by
    a hard link, where table and checkpoints are on one file system; no rows go through the driver.

    An upsert updates the row whose columns `merge` are equal, or inserts one; of several rows of a batch with the same
    ones, the last counts. It runs in the driver's process, in memory, with up to 256 MiB of stored rows per batch;
    a larger batch is rejected. A null in these columns is rejected, too.

    For a local or shared file system. What a killed driver leaves is deleted by the table's VACUUM.

    >>> import emberstate as es
    >>> es.Pipeline("cards", es.MemoryStateBackend()).sink(es.sinks.delta("/tables/totals"))  # doctest: +SKIP
    Pipeline('cards', stages=[], sinks={'main': ["delta('/tables/totals'): exactly-once"]})
    """
    return DeltaSink(path, merge)
