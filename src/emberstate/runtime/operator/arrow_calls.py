"""`ArrowCalls`: calls `process_arrow` with a record batch and the keys of its rows, and checks what it returns.

The function gets the columns of the input that it asked for, none of the library's own. What it returns must have the
columns of the output: the same names, in any order, and values of their types. As with rows, an int goes into any
column of ints or floats that holds it; nothing is rounded or cut.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.errors import RowTypeError
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.batch_keys import BatchKeys
from emberstate.runtime.functions.column_state import ColumnState
from emberstate.runtime.rows.arrow_rows import arrow_schema, row_type_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.row import RowType


class ArrowCalls:
    """Calls the method of one function, whose states are these."""

    def __init__(self, states: Sequence[ColumnState], key_schema: KeySchema, output: RowType | None) -> None:
        self._states = tuple(states)
        self._key_schema = key_schema
        self._output = output

    def run(self, method: Any, input: KeyedInput, batch: pa.RecordBatch, groups: Any) -> list[pa.RecordBatch]:
        """Call `process_arrow` with rows whose keys have these key groups; return its rows."""
        input.check_nulls(batch)
        names = input.row_type.names if input.shape is None else input.shape.columns
        given = declared_batch(batch, RowType(input.row_type.columns[input.row_type.position(n)] for n in names))
        keys = BatchKeys(batch, input.key_columns, groups, self._key_schema)
        try:
            for state in self._states:
                state.begin(keys)
            made = checked_output(method(given, keys), self._output)
            for state in self._states:
                state.store()
        finally:
            for state in self._states:
                state.end()
        return made


def declared_batch(batch: pa.RecordBatch, row_type: RowType) -> pa.RecordBatch:
    """The columns of `row_type`, with the Arrow types that Spark uses for them."""
    arrays = []
    for column, field in zip(row_type.columns, arrow_schema(row_type), strict=True):
        array = batch.column(column.name)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, names=list(row_type.names))


def checked_output(returned: Any, row_type: RowType | None) -> list[pa.RecordBatch]:
    """What `process_arrow` returned, as batches of the output's columns.

    Raises:
        RowTypeError: it is no batch, or does not fit the columns.

    >>> made = checked_output(pa.record_batch({"n": [1], "card": ["a"]}), RowType.of("card string, n int"))
    >>> made[0].schema.field("n").type, made[0].to_pylist()
    (DataType(int32), [{'card': 'a', 'n': 1}])
    """
    if returned is None:
        return []
    if not isinstance(returned, (pa.RecordBatch, pa.Table)):
        raise RowTypeError(
            f"process_arrow returns a pyarrow RecordBatch or Table, or None for no rows; it returned "
            f"{type(returned).__name__} ({returned!r:.100})",
            expected="RecordBatch, Table or None",
            found=type(returned).__name__,
        )
    batches = returned.to_batches() if isinstance(returned, pa.Table) else [returned]
    if row_type is None:
        return [declared_batch(batch, row_type_of(batch.schema)) for batch in batches if batch.num_rows]
    names = returned.schema.names
    if len(names) != len(row_type.names) or set(names) != set(row_type.names):
        raise RowTypeError(
            f"process_arrow returned the columns {names}, the output has {list(row_type.names)}: return these, in any "
            f"order",
            expected=list(row_type.names),
            found=names,
        )
    schema = arrow_schema(row_type)
    return [
        pa.RecordBatch.from_arrays([_fitted(batch.column(field.name), field) for field in schema], schema=schema)
        for batch in batches
        if batch.num_rows
    ]


def _fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count and not field.nullable:
        raise RowTypeError(f"column {field.name} has nulls and must not: fill them", column=field.name)
    if array.type == field.type or pa.types.is_null(array.type):
        return array.cast(field.type)
    found, expected = _kind(array.type), _kind(field.type)
    if found is None or not (found == expected or (found == "an int" and expected == "a float")):
        raise RowTypeError(
            f"column {field.name} is {field.type}, process_arrow returned {array.type}: cast it",
            column=field.name,
            expected=str(field.type),
            found=str(array.type),
        )
    try:
        made = array.cast(field.type)
    except pa.ArrowInvalid as error:
        raise RowTypeError(f"column {field.name} is {field.type}: {error}", column=field.name) from None
    if pa.types.is_floating(array.type) and not _same(array, made):
        raise RowTypeError(
            f"column {field.name} is {field.type}, which rounds what process_arrow returned as {array.type}: cast it",
            column=field.name,
            expected=str(field.type),
            found=str(array.type),
        )
    return made


def _same(one: pa.Array, other: pa.Array) -> bool:
    first, second = (array.to_numpy(zero_copy_only=False) for array in (one, other))
    return bool(np.array_equal(first, second, equal_nan=True))


def _kind(type_: pa.DataType) -> str | None:
    """Types of one kind are cast into each other, if every value stays the same."""
    if pa.types.is_timestamp(type_):
        return "a wall clock's time" if type_.tz is None else "a time"
    return next((kind for kind, types in _KINDS.items() if type_ in types), None)


_INTS: Final = (*[getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)],)
_KINDS: Final = {
    "an int": _INTS,
    "a float": (pa.float16(), pa.float32(), pa.float64()),
    "a text": (pa.string(), pa.large_string(), pa.string_view()),
    "bytes": (pa.binary(), pa.large_binary(), pa.binary_view()),
}
