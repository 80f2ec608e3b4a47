"""Puts the rows of a part into a directory as Parquet files: the stored file itself where it can be, a new one else.

A stored Parquet file is adopted: a hard link, or on another file system a copy, which the kernel makes. It is never
moved, since the batch may have to be delivered again. Its checksum was compared before. A link shares permissions with
the stored file, so a file that is readable by more than the target may be is copied, and a linked one is not writable:
whoever changed it in place would damage the checkpoint.

Thread safety: pure functions, apart from the files that they write.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from emberstate.sinks.parts import Part

_READ = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH


def file_mode(directory: Path) -> int:
    """The permissions of a file in a directory: those who may read the directory may read it, nobody writes."""
    return stat.S_IRUSR | directory.stat().st_mode & _READ


def write_part(part: Part, folder: Path, name: str, mode: int, partition_by: Sequence[str] = ()) -> list[Path]:
    """Write the rows of a part as files below a folder; they are durable on return. Returns their paths.

    With `partition_by`, the files are in directories `column=value`, without these columns.

    Raises:
        CorruptionError: the stored bytes are damaged.
    """
    stored = None if partition_by else part.parquet_file()
    target = folder / f"{name}.parquet"
    if stored is not None:
        adopt(stored, target, mode)
        written = [target]
    elif partition_by:
        _write_partitioned(part, folder, name, partition_by)
        written = sorted(folder.rglob(f"{name}*.parquet"))
    else:
        import pyarrow.parquet as pq

        with pq.ParquetWriter(target, part.arrow_schema) as writer:
            for batch in part.batches():
                writer.write_batch(batch)
        written = [target]
    if stored is None:
        for file in written:
            file.chmod(mode)
            sync(file)
    for directory in {parent for file in written for parent in file.parents if parent.is_relative_to(folder)}:
        sync(directory)
    return written


def adopt(stored: Path, target: Path, mode: int) -> None:
    """Give a stored file a second name; its bytes are durable already, those of a copy are on return."""
    if not stat.S_IMODE(stored.stat().st_mode) & _READ & ~mode:
        with contextlib.suppress(OSError):  # another file system, or one without links: a copy says what is wrong
            target.hardlink_to(stored)
            target.chmod(mode)
            os.utime(target)  # a table's VACUUM deletes files of no commit by their age, and this one's is to come
            return
        target.unlink(missing_ok=True)
    copy(stored, target)
    target.chmod(mode)
    sync(target)


def copy(source: Path, target: Path) -> None:
    """Copy a file within the kernel or, on shared file systems that can, within their server."""
    with source.open("rb") as read, target.open("xb") as write:
        try:
            while os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                pass
        except OSError:  # not between these two
            read.seek(0)
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)


def sync(path: Path) -> None:
    """Make a file or a directory durable."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _write_partitioned(part: Part, folder: Path, name: str, partition_by: Sequence[str]) -> None:
    import pyarrow.dataset as ds

    schema = part.arrow_schema
    ds.write_dataset(
        _batches(part),
        folder,
        schema=schema,
        format="parquet",
        partitioning=ds.partitioning(pa.schema([schema.field(column) for column in partition_by]), flavor="hive"),
        basename_template=f"{name}-{{i}}.parquet",
        existing_data_behavior="overwrite_or_ignore",
    )


def _batches(part: Part) -> Iterator[pa.RecordBatch]:
    yield from part.batches()
