"""Operators for tests: made, opened, and run transaction by transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.outputs import TransactionResult

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after 1970."""
    return EPOCH + timedelta(seconds=seconds)


def opened(function: ProcessFunction, key: Any = str, **options: Any) -> KeyedOperator:
    """An open operator with a backend of its own."""
    operator = KeyedOperator("op", function, HeapKeyedStateBackend(KeySchema.from_python(key)), **options)
    operator.open()
    return operator


def transaction(
    operator: KeyedOperator,
    rows: Iterable[tuple[Any, ...]] = (),
    *,
    processing_time: int = 0,
    watermark: int | None = None,
) -> TransactionResult:
    """One transaction over rows of (key, row) or (key, row, seconds)."""
    operator.begin(processing_time, watermark)
    for key, row, *seconds in rows:
        operator.process(key, row, *(int(second * SECOND) for second in seconds))
    result = operator.end()
    operator.check_invariants()
    return result
