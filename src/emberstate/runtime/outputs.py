"""What a function puts out: rows by output name, until the transaction ends.

Rows stay as they were put out until they are checked: all at once, by column, when they are made into a record
batch or asked for.

Thread safety: the operator's thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.runtime.emissions import Emissions, with_origins
from emberstate.runtime.row import RowType
from emberstate.runtime.row_batches import all_tuples
from emberstate.runtime.row_checks import check_value

if TYPE_CHECKING:
    import pyarrow as pa

#: The output of what functions yield and return.
MAIN: Final = "main"


class OutputRows:
    """The rows of one output in one transaction; without a row type they are not checked."""

    __slots__ = ("_batches", "_checked", "_pending", "emissions", "label", "row_type")

    def __init__(self, label: str, row_type: RowType | None) -> None:
        self.label = label
        self.row_type = row_type
        #: What goes along with the rows into record batches, if anything does.
        self.emissions: Emissions | None = None
        self._pending: list[Any] = []
        self._checked = 0  # of those that are pending
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
        from emberstate.runtime.arrow_rows import rows_of

        assert self.row_type is not None
        return [row for batch in self._batches for row in rows_of(batch, self.row_type)] + self._pending

    def batches(self) -> list[pa.RecordBatch]:
        """All rows as record batches."""
        self.seal()
        return list(self._batches)

    def check(self) -> None:
        """Make tuples of what was put out since the last check, and refuse a value of the wrong type."""
        row_type = self.row_type
        pending = self._pending
        for position in range(self._checked, len(pending)):
            row = pending[position] = self._as_tuple(pending[position])
            if row_type is not None:
                for value, column in zip(row, row_type.columns, strict=True):
                    try:
                        check_value(value, column.type, column.nullable)
                    except RowTypeError as error:
                        raise RowTypeError(f"{self.label}: column {column.name}{error} in row {row!r:.500}") from None
        self._checked = len(pending)

    def seal(self) -> None:
        """Make a record batch of the pending rows."""
        from emberstate.runtime.arrow_rows import batch_of

        row_type = self.stored_type
        if self.row_type is None or row_type is None:
            raise StateDeclarationError(f"{self.label} has no schema, so it cannot become a DataFrame: declare one")
        pending = self._pending
        if not pending:
            return
        if not all_tuples(pending, len(self.row_type.names)):
            pending[:] = [self._as_tuple(row) for row in pending]
        rows = pending if self.emissions is None else self.emissions.attach()
        try:
            self._batches.append(batch_of(rows, row_type))
        except RowTypeError as error:
            raise RowTypeError(f"{self.label}: {error}") from None
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
        if isinstance(row, Mapping):
            if self.row_type is None:
                return row
            try:
                return tuple(self.row_type.coerce(row))
            except RowTypeError as error:
                raise RowTypeError(f"{self.label}: {error}") from None
        way_out = " (yield nothing instead of None)" if row is None else ""
        raise RowTypeError(
            f"{self.label}: a row is a tuple or a dict, found {type(row).__name__} ({row!r:.100}){way_out}; for a "
            f"single column yield (value,)"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class TransactionResult:
    """What came of a transaction: outputs by name, counts, and how far event time got."""

    outputs: Mapping[str, OutputRows]
    #: What the function counted by `ctx.count`.
    counters: Mapping[str, int]
    #: How many rows came, late ones included.
    rows: int
    late_rows: int
    #: How many of the late rows reached no method of the function.
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
