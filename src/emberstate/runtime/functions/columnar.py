"""`ColumnarFunction`: a function of the library's own that can take record batches as they are, and emit one.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.finishing import FinishingFunction

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnarFunction(FinishingFunction):
    """Handles rows by whole batches if its state is in columns; else row by row, like any other function."""

    @property
    def takes_batches(self) -> bool:
        """Whether the operator shall call `process_columns`; decided in `open`."""
        raise NotImplementedError

    def resume(self, ctx: FunctionContext) -> None:
        """Look at what was restored: called in the first transaction of a copy, before anything else."""

    def process_columns(self, batch: pa.RecordBatch, key_groups: memoryview, ctx: FunctionContext) -> None:
        """Handle all rows of a batch, whose keys have these key groups; late rows are among them."""
        raise NotImplementedError

    def finish_columns(self) -> list[pa.RecordBatch]:
        """What is to be emitted at the end of the transaction."""
        raise NotImplementedError
