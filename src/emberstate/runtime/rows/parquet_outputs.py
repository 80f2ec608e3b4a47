"""Outputs as Parquet files, which Spark reads by itself.

A large output in a directory is written this way, if its columns are the same in both: `fits_parquet`. The file has
plain values, not compressed, in one row group, with a checksum per page and without statistics. So rows keep their
order, whoever reads, and reading costs no more than the file's size.

Spark reads a file only after `check_parquet` has seen all its bytes, under the checksum of the manifest.

Thread safety: pure functions.

>>> totals = RowType.of("card string, total double")
>>> from emberstate.runtime.rows.arrow_rows import batch_of, rows_of
>>> content = write_parquet([batch_of([("ann", 2.5)], totals)], totals)
>>> [rows_of(batch, totals) for batch in parquet_batches(content, totals)]
[[Row(card='ann', total=2.5)]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from emberstate.errors import CorruptionError
from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import RowType

#: Types that Parquet cannot hold, or Spark reads from it as something else.
_OTHER: Final = ("void", "interval day to second")
#: Rows of a row group: more than an output has, so that there is one.
_ALL_ROWS: Final = 2**40


def fits_parquet(row_type: RowType) -> bool:
    """Whether Spark reads these columns from Parquet exactly as they are.

    Names that differ in case alone are not told apart. A field that is never null may stand in a struct that is null,
    which Parquet does not allow.

    >>> fits_parquet(RowType.of("a int, b array<struct<x: date>>")), fits_parquet(RowType.of("a int, A int"))
    (True, False)
    """
    return _distinct(row_type.columns) and all(_fits(column.type) for column in row_type.columns)


def _fits(type_: DataType) -> bool:
    if type_.kind == "struct":
        nullable = all(field.nullable for field in type_.fields)
        return bool(type_.fields) and nullable and _distinct(type_.fields) and all(_fits(f.type) for f in type_.fields)
    return type_.kind not in _OTHER and all(_fits(item) for item in type_.items)


def _distinct(columns: Sequence[Column]) -> bool:
    return len({column.name.lower() for column in columns}) == len(columns)


def write_parquet(batches: Sequence[pa.RecordBatch], row_type: RowType) -> bytes:
    """Return the rows of some batches as the bytes of a file."""
    import pyarrow.parquet as pq

    schema, sink = arrow_schema(row_type), pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, schema, compression="none", use_dictionary=False, write_statistics=False, write_page_checksum=True
    ) as writer:
        writer.write_table(pa.Table.from_batches(batches, schema), row_group_size=_ALL_ROWS)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parquet_batches(content: bytes, row_type: RowType, name: str = "") -> Iterator[pa.RecordBatch]:
    """Yield the rows as record batches; messages name the file by `name`.

    Raises:
        CorruptionError: the bytes are no output of this type.
    """
    file = check_parquet(content, row_type, name)
    try:
        batches = file.read().to_batches()
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise _damaged(name, error) from None
    yield from batches


def check_parquet(content: bytes, row_type: RowType, name: str = "") -> Any:
    """Return Arrow's reader of the file, whose columns and sizes were checked; messages name it by `name`.

    Raises:
        CorruptionError: the bytes are no output of this type.
    """
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.py_buffer(content), page_checksum_verification=True)
        found, expected = file.schema_arrow, arrow_schema(row_type)
        if not found.equals(expected):
            columns = ", ".join(f"{field.name}: {field.type}" for field in found)
            raise CorruptionError(
                f"it has columns ({columns:.300}), expected are ({row_type.schema})",
                expected=row_type.schema,
                found=columns,
            )
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(number).total_byte_size for number in groups)
        if not 0 <= size <= len(content):
            raise CorruptionError(f"its {len(content)} bytes declare {size} bytes of values: no output is compressed")
    except (CorruptionError, pa.ArrowException, ValueError, OSError) as error:
        raise _damaged(name, error) from None
    return file


def _damaged(name: str, error: Exception) -> CorruptionError:
    damage = CorruptionError(
        f"an output{name and f' ({name})'} cannot be read: {error!s:.500}. It is damaged or was exchanged: restore an "
        f"older checkpoint or a savepoint.",
        path=name or None,
    )
    return damage.located(**error.place) if isinstance(error, CorruptionError) else damage
