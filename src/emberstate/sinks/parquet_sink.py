"""`parquet`: a folder of Parquet files, a directory per batch, that every tool reads.

    path/batch=7/part-00000.parquet      the rows of the first slot in batch 7; below column=value with `partition_by`
    path/_emberstate.json                whose batches these are; readers pass over names that begin with _
    _path.staging/…                      beside it: batches on their way, which no reader of the folder finds

Invariants
1. A batch appears by one rename of a directory, whole and durable. The rename replaces nothing: if the batch is there,
   it stays as it is, whoever delivers it again.
2. Files of a batch are put together from what those attempts of tasks wrote that returned; what other attempts leave
   stays behind.
3. Nothing that is staged is deleted under its own name: it is renamed first. So a driver that was paused while it
   gathered a batch, and wakes up, finds nothing to publish, rather than a part of it.
4. One origin writes to a folder, the one that `_emberstate.json` names; it is created, never changed.

Thread safety: as `Sink`. Any number of processes may deliver the same batch.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from emberstate.errors import SinkError
from emberstate.runtime.rows.parquet_outputs import fits_parquet
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.adoption import file_mode, sync, write_part
from emberstate.sinks.arguments import column_names, local_directory
from emberstate.sinks.interface import Delivery, Origin, Sink, Start
from emberstate.sinks.parts import Part

_OWNER: Final = "_emberstate.json"
#: Types whose values are written as text in the name of a directory.
_PARTITION_TYPES: Final = ("string", "tinyint", "smallint", "int", "bigint", "date", "boolean")


class ParquetSink(Sink):
    """A folder of Parquet files."""

    promise = "exactly-once"

    def __init__(self, path: str | os.PathLike[str], partition_by: Sequence[str]) -> None:
        self._path = local_directory(
            "parquet",
            path,
            "An object store cannot rename a directory, so readers would see parts of a batch. Deliver to a shared "
            "file system, or write a function.",
        )
        self._staging = self._path.with_name(f"_{self._path.name}.staging")
        self._partition_by = column_names("partition_by", partition_by)

    def __repr__(self) -> str:
        by = f", partition_by={list(self._partition_by)}" if self._partition_by else ""
        return f"parquet({str(self._path)!r}{by})"

    def check(self, start: Start) -> None:
        """Raise if the folder cannot be written or is another job's; remove what a killed driver left."""
        self._check_columns(start.row_type)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._check_owner(start.before)
            self._remove_leftovers()
            probe = self._path / f"_probe.{secrets.token_hex(8)}"
            self._new_staging().rename(probe)
            probe.rmdir()
        except OSError as error:
            raise SinkError(
                f"{self!r} cannot write to its folder: {error}. Give a path where this user may create directories, "
                f"and beside it, on the same file system: batches are put together in {self._staging}.",
                option="path",
                path=str(self._path),
                found=error.strerror,
            ) from error

    def deliver(self, delivery: Delivery) -> None:
        """Publish the batch, unless it is there."""
        if not delivery.rows:
            return
        self._claim(delivery.origin)
        published = self._path / f"batch={delivery.batch}"
        if published.exists():
            return
        staging = self._new_staging()
        folders = delivery.in_tasks(_Write(str(staging), file_mode(self._path), self._partition_by))
        gathered = _gather(staging, folders, stat.S_IMODE(self._path.stat().st_mode) | stat.S_IRWXU)
        try:
            gathered.rename(published)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise  # with its path; nothing is published
        sync(self._path)
        _discard(staging)

    def _check_columns(self, row_type: RowType) -> None:
        types = {column.name: column.type.kind for column in row_type.columns}
        wrong = [name for name in self._partition_by if types.get(name) not in _PARTITION_TYPES]
        if wrong or len(self._partition_by) >= len(types):
            raise SinkError(
                f"{self!r}: expected some of the columns, of types {', '.join(_PARTITION_TYPES)}, in partition_by; the "
                f"output has ({row_type.schema}).",
                option="partition_by",
                expected=_PARTITION_TYPES,
                found=wrong or list(self._partition_by),
            )
        taken = [name for name in types if name.lower() == "batch"]
        if taken:
            raise SinkError(
                f"{self!r}: the output has a column {taken[0]!r}, and readers take the number in batch=… for one of "
                f"this name. Name the column otherwise.",
                option="path",
                column=taken[0],
            )
        if not fits_parquet(row_type):
            raise SinkError(
                f"{self!r}: the columns ({row_type.schema}) cannot be stored as Parquet: void, intervals, names that "
                f"differ in case alone, structs with fields that are never null. Change the schema of the stage.",
                option="schema",
                found=row_type.schema,
            )

    def _check_owner(self, origin: Origin | None) -> None:
        """Raise if the folder has batches of another origin; None is one that has delivered nothing yet."""
        owner = self._owner()
        if owner is None:
            found = sorted(entry.name for entry in self._path.iterdir() if not entry.name.startswith(("_", ".")))
            if found:
                raise SinkError(
                    f"{self!r}: expected a new or empty folder, or one that this sink has begun; found {found[0]!r} "
                    f"and no {_OWNER}. Readers could not tell the rows apart. Give another path.",
                    option="path",
                    path=str(self._path),
                    found=found[:10],
                )
        elif origin is None or owner != dataclasses.asdict(origin):
            raise SinkError(
                f"{self!r}: the folder has batches of output {owner.get('output')!r} of stage {owner.get('stage')!r} "
                f"of job {owner.get('job')!r}, query {owner.get('query')!r}, location {owner.get('location')!r}; this "
                f"is {'a job that has delivered nothing yet' if origin is None else origin}. Batch numbers of two "
                f"queries cannot be compared. Give a job that starts anew another path, or move the folder away.",
                option="path",
                path=str(self._path),
                expected=None if origin is None else dataclasses.asdict(origin),
                found=owner,
            )

    def _owner(self) -> dict[str, str] | None:
        try:
            found = json.loads((self._path / _OWNER).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {}

    def _claim(self, origin: Origin) -> None:
        """Write down whose folder it is, or raise if it is another one's."""
        self._path.mkdir(parents=True, exist_ok=True)
        if self._owner() is None:
            self._check_owner(None)
            aside = self._path / f"{_OWNER}.{secrets.token_hex(8)}"
            try:
                aside.write_text(json.dumps(dataclasses.asdict(origin)), encoding="utf-8")
                sync(aside)
                (self._path / _OWNER).hardlink_to(aside)
            except FileExistsError:
                pass  # another driver was faster; it may be of another job
            finally:
                aside.unlink(missing_ok=True)
            sync(self._path)
        self._check_owner(origin)

    def _new_staging(self) -> Path:
        staging = self._staging / secrets.token_hex(8)
        staging.mkdir(parents=True)
        return staging

    def _remove_leftovers(self) -> None:
        for left in self._staging.glob("*"):
            _discard(left)


def _gather(staging: Path, folders: Sequence[str], mode: int) -> Path:
    """A directory with the files of these folders, all of it durable; directories get the mode."""
    gathered = staging / "batch"
    gathered.mkdir()
    for folder in folders:
        for file in (path for path in Path(folder).rglob("*") if path.is_file()):
            target = gathered / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
    for directory in [*(path for path in gathered.rglob("*") if path.is_dir()), gathered]:
        directory.chmod(mode)
        sync(directory)
    return gathered


def _discard(left: Path) -> None:
    """Delete what was staged, renamed first: invariant 3."""
    gone = left.with_name(f"gone-{secrets.token_hex(8)}")
    try:
        left.rename(gone)
    except FileNotFoundError:
        return
    shutil.rmtree(gone, ignore_errors=True)  # what is left, the next start deletes


@dataclasses.dataclass(frozen=True, slots=True)
class _Write:
    """Writes a part below a staging directory, into a folder of its own, whose name it returns."""

    staging: str
    mode: int
    partition_by: tuple[str, ...]

    def __call__(self, part: Part) -> str:
        folder = Path(self.staging, f"{part.number}-{secrets.token_hex(8)}")
        try:
            folder.mkdir()
        except FileNotFoundError:
            raise SinkError(
                f"{self.staging} is not there for an executor, or another driver has taken over. A folder of a cluster "
                f"must be on a file system that all machines share.",
                option="path",
                path=self.staging,
            ) from None
        write_part(part, folder, f"part-{part.number:05}", self.mode, self.partition_by)
        return str(folder)


def parquet(path: str | os.PathLike[str], *, partition_by: Sequence[str] = ()) -> ParquetSink:
    """A sink that makes a folder of Parquet files, which Spark, DuckDB and pandas read as one table.

    Exactly-once: a batch is a directory `batch=N`, which appears whole, by one rename, and is never replaced. Files
    of more than 64 KiB are the stored output itself, by a hard link, where folder and checkpoints are on one file
    system; else copies. They are not compressed, and nobody may write to them. With `partition_by`, rows are written
    anew, below directories `column=value`; readers get these columns from the names, as with Spark's `partitionBy`:
    types are guessed, and an empty text becomes null. Batches are put together beside the folder, in `_NAME.staging`.

    For a local or shared file system, on which the driver and all executors see the path. An object store has no
    such rename. One query writes to a folder: another one is rejected.

    >>> import emberstate as es
    >>> es.Pipeline("cards", es.MemoryStateBackend()).sink(es.sinks.parquet("/data/totals", partition_by=["country"]))
    Pipeline('cards', stages=[], sinks={'main': ["parquet('/data/totals', partition_by=['country']): exactly-once"]})
    """
    return ParquetSink(path, partition_by)
