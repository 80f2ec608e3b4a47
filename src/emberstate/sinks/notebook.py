"""Sinks to look at output with: `console` prints it, `memory` keeps it.

Thread safety: deliveries come on the thread of the batches; what `memory` has kept may be read from any thread.
"""

from __future__ import annotations

import pyarrow as pa

from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.arrow_rows import row_type_of, rows_of
from emberstate.runtime.rows.row import Row
from emberstate.sinks.interface import Delivery, Sink


class ConsoleSink(Sink):
    """Prints the first rows of every batch."""

    promise = "at-least-once: a batch that is delivered again is printed again"

    def __init__(self, rows: int) -> None:
        if type(rows) is not int or rows < 1:
            raise StateDeclarationError(f"rows: expected a positive number, got {rows!r}", option="rows", found=rows)
        self._rows = rows

    def deliver(self, delivery: Delivery) -> None:
        output = f"{delivery.origin.job}: {delivery.origin.output} of {delivery.origin.stage}"
        print(f"{output}, batch {delivery.batch}, {delivery.rows} rows")  # noqa: T201
        if delivery.rows:
            delivery.frame().show(self._rows, truncate=False)

    def __repr__(self) -> str:
        return f"console(rows={self._rows})"


class MemorySink(Sink):
    """Keeps all rows in the memory of the driver's process, each batch once."""

    promise = "exactly-once, as long as the process lives"

    def __init__(self) -> None:
        self._batches: dict[tuple[str, int], list[pa.RecordBatch]] = {}  # replaced, never changed: see `rows`

    def deliver(self, delivery: Delivery) -> None:
        key = delivery.origin.id, delivery.batch
        if key not in self._batches:
            found = [batch for part in delivery.parts for batch in part.batches()]
            self._batches = {**self._batches, key: found}

    @property
    def rows(self) -> list[Row]:
        """The rows so far, in the order of their batches."""
        return [
            row
            for batches in self._batches.values()
            for batch in batches
            for row in rows_of(batch, row_type_of(batch.schema))
        ]

    @property
    def table(self) -> pa.Table:
        """The rows so far as an Arrow table; without columns before the first rows."""
        found = [batch for batches in self._batches.values() for batch in batches]
        return pa.Table.from_batches(found) if found else pa.table({})

    def __repr__(self) -> str:
        return "memory()"


def console(rows: int = 20) -> ConsoleSink:
    """A sink that prints the first `rows` rows of every batch. At-least-once: it prints again what comes again.

    >>> import emberstate as es
    >>> es.Pipeline("cards", es.MemoryStateBackend()).sink(es.sinks.console())  # doctest: +ELLIPSIS
    Pipeline('cards', stages=[], sinks={'main': ['console(rows=20): at-least-once: a batch that is ...']})
    """
    return ConsoleSink(rows)


def memory() -> MemorySink:
    """A sink that keeps all rows in the driver's process: `sink.rows`, or `sink.table` as an Arrow table.

    Exactly-once, as long as the process lives. It grows with the output: for notebooks and tests.

    >>> import emberstate as es
    >>> kept = es.sinks.memory()
    >>> pipeline = es.Pipeline("cards", es.MemoryStateBackend()).sink(kept)
    >>> kept.rows
    []
    """
    return MemorySink()
