"""The files that `emberstate state export` writes: Parquet, CSV and JSON, a batch of rows at a time.

    .parquet   typed columns, as `CheckpointReader.to_arrow` has them
    .csv       a line of names; text is quoted, so that an empty text is not taken for a missing one; lists, maps and
               records are JSON
    .json      an array with an object for each row
    .jsonl     an object on each line

In CSV and JSON bytes are in base 64, times in ISO 8601, decimals text. JSON has no NaN and no infinity: there they are
the texts "NaN", "Infinity" and "-Infinity".

A file appears under its name when it is complete, or not at all. It replaces another one only if told so.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from emberstate.checkpoint.read.plain_rows import plain_rows
from emberstate.cli.console import Refused
from emberstate.errors import EmberstateError

Write = Callable[[pa.RecordBatch], None]


def write_file(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], overwrite: bool) -> int:
    """Write a file in the format of its ending; returns the number of rows."""
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")  # until it is complete
    rows = 0
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FORMATS[file.suffix](part, schema) as write:
            for batch in batches:
                write(batch)
                rows += batch.num_rows
        if overwrite:
            part.replace(file)
        else:
            os.link(part, file)  # unlike a rename, it overwrites nothing
    except EmberstateError:
        raise  # of reading
    except (pa.ArrowException, OSError) as error:
        raise Refused(f"writing {file} failed: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return rows


@contextlib.contextmanager
def _parquet(part: Path, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(part, schema, compression="zstd") as writer:
        yield lambda batch: writer.write_batch(batch.replace_schema_metadata(schema.metadata))


@contextlib.contextmanager
def _csv(part: Path, schema: pa.Schema) -> Iterator[Write]:
    flat = pa.schema([(field.name, field.type if _is_plain(field.type) else pa.string()) for field in schema])

    def write(batch: pa.RecordBatch) -> None:
        rows = plain_rows(pa.Table.from_batches([batch]))
        columns = [
            batch.column(field.name)
            if _is_plain(schema.field(field.name).type)
            else pa.array([_text(row[field.name]) for row in rows], pa.string())
            for field in flat
        ]
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))

    with pacsv.CSVWriter(part, flat) as writer:
        yield write


@contextlib.contextmanager
def _json(part: Path, schema: pa.Schema) -> Iterator[Write]:
    first = True

    def write(batch: pa.RecordBatch) -> None:
        nonlocal first
        for row in plain_rows(pa.Table.from_batches([batch])):
            stream.write(b"[\n" if first else b",\n")
            stream.write(msgspec.json.encode(_exact(row)))
            first = False

    with part.open("xb") as stream:
        yield write
        stream.write(b"[]\n" if first else b"\n]\n")


@contextlib.contextmanager
def _json_lines(part: Path, schema: pa.Schema) -> Iterator[Write]:
    with part.open("xb") as stream:
        yield lambda batch: stream.writelines(
            msgspec.json.encode(_exact(row)) + b"\n" for row in plain_rows(pa.Table.from_batches([batch]))
        )


#: By the ending of a file's name.
FORMATS: Final[dict[str, Callable[[Path, pa.Schema], AbstractContextManager[Write]]]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".json": _json,
    ".jsonl": _json_lines,
}


def _is_plain(type_: Any) -> bool:
    """Whether CSV writes the values of a type as they are."""
    types = pa.types
    return bool(
        types.is_boolean(type_) or types.is_integer(type_) or types.is_floating(type_) or types.is_string(type_)
    )


def _text(value: Any) -> str | None:
    """A value in CSV, where it is text.

    >>> _text(b"ab"), _text([1, None]), _text(None)
    ('YWI=', '[1,null]', None)
    """
    if value is None:
        return None
    plain = msgspec.to_builtins(_exact(value), str_keys=True)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def _exact(value: Any) -> Any:
    """A value without numbers that JSON lacks.

    >>> _exact({"a": [1.5, math.inf, -math.inf, math.nan]})
    {'a': [1.5, 'Infinity', '-Infinity', 'NaN']}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    return value
