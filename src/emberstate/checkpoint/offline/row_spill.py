"""`RowSpill`: sorts rows by key group on the local disk, for rows that do not fit into memory.

It takes rows in any order, writes them to one compressed file per range of key groups, and returns a range at a time.

Thread safety: one thread.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import ipc

from emberstate.checkpoint.offline.rewritten_states import RewrittenRow

#: The number of ranges.
_PARTITIONS: Final = 32
_SPILLED_ROWS: Final = 4096
_SPILL: Final = pa.schema(
    [
        ("key_group", pa.uint16()),
        ("layer", pa.uint16()),
        ("state", pa.uint16()),
        ("key", pa.large_binary()),
        ("namespace", pa.large_binary()),
        ("op", pa.uint8()),
        ("user_key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("stamp", pa.int64()),
        ("step", pa.uint32()),
    ]
)


class RowSpill:
    """Rows in files of a folder, by ranges of key groups."""

    def __init__(self, folder: Path, max_parallelism: int) -> None:
        self._folder = folder
        self._count = min(_PARTITIONS, max_parallelism)
        self._max_parallelism = max_parallelism

    def add(self, rows: Iterable[RewrittenRow]) -> None:
        """Write rows to the files."""
        pending: dict[int, list[RewrittenRow]] = {}
        for row in rows:
            some = pending.setdefault(row.key_group * self._count // self._max_parallelism, [])
            some.append(row)
            if len(some) >= _SPILLED_ROWS:
                self._write(row.key_group * self._count // self._max_parallelism, some)
                some.clear()
        for partition, some in pending.items():
            self._write(partition, some)

    def _write(self, partition: int, rows: list[RewrittenRow]) -> None:
        if not rows:
            return
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SPILL, strict=True)]
        options = ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        # Appends one stream per call, so no file stays open.
        with (self._folder / str(partition)).open("ab") as file, ipc.new_stream(file, _SPILL, options=options) as out:
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SPILL))

    def partitions(self) -> Iterator[list[RewrittenRow]]:
        """Yield the rows of each range, ascending, and delete its file."""
        for partition in range(self._count):
            path = self._folder / str(partition)
            if not path.exists():
                continue
            rows: list[RewrittenRow] = []
            with path.open("rb") as file:
                size = path.stat().st_size
                while file.tell() < size:
                    for batch in ipc.open_stream(file):
                        rows += itertools.starmap(
                            RewrittenRow, zip(*(column.to_pylist() for column in batch.columns), strict=True)
                        )
            path.unlink()
            yield rows
