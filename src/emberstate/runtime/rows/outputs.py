"""Outputs: the rows that a function emits in one transaction, and their bytes in a checkpoint.

`OutputRows` collects the rows of one output and checks them by column, all at once: when they become a record batch or
when a caller asks for them.

The bytes are a Parquet file (`parquet_outputs`) or an Arrow IPC stream: a schema, uncompressed record batches, and an
end mark. They are stored with a checkpoint and deleted with it. A reader trusts them no more than a state file: before
Arrow sees a stream, the reader checks the messages, every number in them against the bytes that are there, and that
nothing is compressed. So reading costs no more than their size. Arrow's full validation follows. Any defect raises
`CorruptionError`.

Thread safety: `OutputRows` belongs to the operator's thread; the functions are pure.

>>> totals = RowType.of("card string, total double")
>>> from emberstate.runtime.rows.arrow_rows import batch_of
>>> read_output(write_output([batch_of([("ann", 2.5)], totals)], totals), totals)
[Row(card='ann', total=2.5)]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from emberstate.checkpoint.files.batches import batch_header, check_buffers, message_header
from emberstate.checkpoint.files.limits import DEFAULT_LIMITS, FileLimits
from emberstate.checkpoint.manifest.model import OutputFormat
from emberstate.errors import CorruptionError, InvariantError, RowTypeError, StateDeclarationError
from emberstate.runtime.rows.arrow_rows import arrow_schema, batch_of, row_type_of, rows_of
from emberstate.runtime.rows.columns import with_origins
from emberstate.runtime.rows.emissions import Emissions
from emberstate.runtime.rows.parquet_outputs import parquet_batches
from emberstate.runtime.rows.records import is_record, record_getter
from emberstate.runtime.rows.row import Row, RowType
from emberstate.runtime.rows.row_batches import all_tuples
from emberstate.runtime.rows.row_checks import check_value

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def write_output(batches: Sequence[pa.RecordBatch], row_type: RowType) -> bytes:
    """Return the rows of some batches as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow_schema(row_type)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def read_output(content: bytes, row_type: RowType, format: OutputFormat = "arrow") -> list[Row]:
    """Return the rows that were written.

    Raises:
        CorruptionError: the bytes are no output of this type.
    """
    return [row for batch in output_batches(content, row_type, "", format) for row in rows_of(batch, row_type)]


def output_batches(
    content: bytes, row_type: RowType, name: str = "", format: OutputFormat = "arrow"
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches that were written; messages name them by `name`, the path of their file.

    Raises:
        CorruptionError: the bytes are no output of this type.
    """
    return (_stream_batches if format == "arrow" else parquet_batches)(content, row_type, name)


def _stream_batches(content: bytes, row_type: RowType, name: str) -> Iterator[pa.RecordBatch]:
    where = f"an output{name and f' ({name})'}"
    try:
        if not content.endswith(_END):
            raise CorruptionError("it has no end mark of an Arrow stream: it was cut off, or is no stream")
        data, schema = memoryview(content)[: -len(_END)], arrow_schema(row_type)
        _, at = message_header(data)
        found = pa.ipc.read_schema(pa.py_buffer(data[:at]))
        if found != schema:
            columns = ", ".join(f"{field.name}: {field.type}" for field in found)
            raise CorruptionError(
                f"it has columns ({columns:.300}), expected are ({row_type.schema})",
                expected=row_type.schema,
                found=columns,
            )
        while at < len(data):
            end = at + _checked_size(data[at:])
            batch = pa.ipc.read_record_batch(pa.py_buffer(data[at:end]), schema)
            batch.validate(full=True)
            for field, column in zip(schema, batch.columns, strict=True):
                if column.null_count and not field.nullable:
                    raise CorruptionError(f"column {field.name!r} has nulls", column=field.name)
            yield batch
            at = end
    except (CorruptionError, pa.ArrowException, ValueError, OSError) as error:
        damage = CorruptionError(
            f"{where} cannot be read: {error!s:.500}. It is damaged or was exchanged: restore an older checkpoint or a "
            f"savepoint.",
            path=name or None,
        )
        raise (damage.located(**error.place) if isinstance(error, CorruptionError) else damage) from None


def output_columns(content: bytes) -> RowType:
    """Return the columns that an output was written with.

    Raises:
        CorruptionError: the bytes are no output.
    """
    try:
        _, end = message_header(memoryview(content))
        return row_type_of(pa.ipc.read_schema(pa.py_buffer(content[:end])))
    except (pa.ArrowException, ValueError, OSError) as error:
        raise CorruptionError(f"the columns of an output cannot be read: {error!s:.500}") from None


def _checked_size(data: memoryview) -> int:
    """Return the size of the record batch that `data` begins with; refuse one that reaches beyond `data`."""
    header, start = message_header(data)
    batch, size = batch_header(header), header.scalar(3, "<q")
    if not 0 <= size <= len(data) - start:
        raise CorruptionError(f"a record batch declares {size} bytes, {len(data) - start} are there")
    if batch.table(3) is not None:
        raise CorruptionError("a record batch is compressed, which no output is")
    # A column of nulls takes no bytes at all, any other at least a bit for each of its values.
    most = max(8 * size, DEFAULT_LIMITS.batch_rows)
    counts = [(batch.scalar(0, "<q"), 0), *batch.structs(1, "<qq")]
    if any(not 0 <= nulls <= rows <= most for rows, nulls in counts):
        raise CorruptionError(f"a record batch of {size} bytes declares (rows, nulls) {counts[:20]}")
    check_buffers(batch.structs(2, "<qq"), data[start : start + size], False, FileLimits(batch_bytes=size))
    return start + size


#: The output that gets what functions yield and return.
MAIN: Final = "main"


class OutputRows:
    """The rows of one output in one transaction. Without a row type they are not checked."""

    __slots__ = ("_batches", "_checked", "_pending", "emissions", "label", "row_type")

    def __init__(self, label: str, row_type: RowType | None) -> None:
        self.label = label
        self.row_type = row_type
        #: Where each row comes from, as further columns of the record batches; None if no stage follows.
        self.emissions: Emissions | None = None
        self._pending: list[Any] = []
        self._checked = 0  # of the pending rows
        self._batches: list[pa.RecordBatch] = []

    @property
    def pending(self) -> list[Any]:
        """Where rows are appended; the same list until they are sealed."""
        return self._pending

    @property
    def stored_type(self) -> RowType | None:
        """The columns of the record batches."""
        if self.row_type is None or self.emissions is None:
            return self.row_type
        return with_origins(self.row_type)

    @property
    def rows(self) -> list[Any]:
        """All rows, as tuples or, of those that are in batches already, `Row`s."""
        self.check()
        if not self._batches:
            return list(self._pending)
        assert self.row_type is not None
        return [row for batch in self._batches for row in rows_of(batch, self.row_type)] + self._pending

    def batches(self) -> list[pa.RecordBatch]:
        """All rows as record batches."""
        self.seal()
        return list(self._batches)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows that are a record batch of the output's columns already."""
        if self.row_type is None:
            self._pending.extend(tuple(row) for row in rows_of(batch, row_type_of(batch.schema)))
            return
        expected = arrow_schema(self.row_type)
        if self.emissions is not None or batch.schema != expected:
            raise InvariantError(f"{self.label}: expected a batch of {expected}, found {batch.schema}")
        self.seal()
        self._batches.append(batch)

    def check(self) -> None:
        """Turn rows since the last check into tuples, and reject values of the wrong type."""
        row_type = self.row_type
        pending = self._pending
        for position in range(self._checked, len(pending)):
            row = pending[position] = self._as_tuple(pending[position])
            if row_type is not None:
                for value, column in zip(row, row_type.columns, strict=True):
                    try:
                        check_value(value, column.type, column.nullable)
                    except RowTypeError as error:
                        text = f"{self.label}: column {column.name}{error} in row {row!r:.500}"
                        raise error.reworded(text).located(column=column.name) from None
        self._checked = len(pending)

    def seal(self) -> None:
        """Make a record batch of the pending rows."""
        row_type = self.stored_type
        if self.row_type is None or row_type is None:
            raise StateDeclarationError(f"{self.label} has no schema, so it cannot become a DataFrame: declare one")
        pending = self._pending
        if not pending:
            return
        if not all_tuples(pending, len(self.row_type.names)):
            classes = set(map(type, pending))
            getter = record_getter(classes.pop(), self.row_type.names) if len(classes) == 1 else None
            pending[:] = map(self._as_tuple if getter is None else getter, pending)
        rows = pending if self.emissions is None else self.emissions.attach()
        try:
            self._batches.append(batch_of(rows, row_type))
        except RowTypeError as error:
            raise error.reworded(f"{self.label}: {error}") from None
        pending.clear()
        self._checked = 0

    def _as_tuple(self, row: Any) -> Any:
        """The row in the order of the schema; a `Row` of the function's own input is taken by position too."""
        if isinstance(row, tuple):
            if self.row_type is not None and len(row) != len(self.row_type.names):
                raise RowTypeError(
                    f"{self.label}: ({self.row_type.schema}) has {len(self.row_type.names)} columns, found a row of "
                    f"{len(row)} ({row!r:.200})"
                )
            return tuple(row)
        if isinstance(row, Mapping) or is_record(type(row)):
            if self.row_type is None:
                return row
            try:
                return tuple(self.row_type.coerce(row))
            except RowTypeError as error:
                raise error.reworded(f"{self.label}: {error}") from None
        way_out = " (yield nothing instead of None)" if row is None else ""
        raise RowTypeError(
            f"{self.label}: a row is a tuple, a dict or a dataclass, found {type(row).__name__} ({row!r:.100})"
            f"{way_out}; for a single column yield (value,)"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionResult:
    """Result of a transaction: outputs by name, counts, and the latest event time."""

    outputs: Mapping[str, OutputRows]
    #: What the function counted by `ctx.count`.
    counters: Mapping[str, int]
    #: Number of input rows, late ones included.
    rows: int
    late_rows: int
    #: Number of late rows that no method of the function handled.
    late_rows_dropped: int
    timers_fired: int
    #: In microseconds; None if there were no rows with a time.
    max_event_time: int | None
    #: The same of each of two inputs; empty if there is one.
    input_times: tuple[int | None, ...]

    @property
    def main(self) -> list[Any]:
        """The rows of the main output."""
        return self.outputs[MAIN].rows
