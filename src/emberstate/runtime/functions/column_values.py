"""`given_values`: values that a function gives for a column, as arrays of the column's own type.

Taken are Arrow and NumPy arrays, lists, and a single value for all. Nothing is rounded or cut: ints go into a column of
floats only if they are the same there, floats into a column of ints never.

Thread safety: pure functions.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from emberstate.errors import StateTypeError
from emberstate.heap.columns.layout import Array, Column, ColumnField, ColumnLayout

#: Kinds of NumPy's types that a column takes.
_KINDS: Final[dict[Any, str]] = {np.int64: "iu", np.float64: "fiu", np.bool_: "b"}
_GREATEST: Final = 2**63 - 1


def given_values(values: Any, count: int, field: ColumnField, layout: ColumnLayout) -> Column:
    """Return `count` values for a field, with a mask of nulls if the field may be null.

    Raises:
        StateTypeError: they are not of the column's type, or not as many.
    """
    if isinstance(values, (bool, int, float, str, np.generic)) or values is None:
        values = [values.item() if isinstance(values, np.generic) else values] * count
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = _from_arrow(values, field)
    if field.dtype is not object and not isinstance(values, (list, tuple)):
        values = np.ma.asarray(values) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if np.ndim(values) != 1 or len(values) != count:
        shape = len(values) if np.ndim(values) == 1 else np.shape(values)
        raise StateTypeError(
            f"{count} handles need {count} values, one for each, found {shape}: give arrays of the same length, or a "
            f"single value for all",
            field=field.name or None,
            expected=count,
            found=shape,
        )
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _from_numpy(values, field)
    column = layout.column(field, list(values))
    if field.dtype is object:
        _check_texts(column.values, field)
    return column


def _from_arrow(values: Any, field: ColumnField) -> Any:
    """An Arrow column as NumPy's, masked if it has nulls; texts as a list."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if field.dtype is object:
        return values.to_pylist()
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise _refusal(field, str(values.type))
    if not values.null_count:
        return values.to_numpy(zero_copy_only=False)
    nulls = values.is_null().to_numpy(zero_copy_only=False)
    filled = values.fill_null(False if pa.types.is_boolean(values.type) else 0)
    return np.ma.MaskedArray(filled.to_numpy(zero_copy_only=False), mask=nulls)


def _from_numpy(values: Array, field: ColumnField) -> Column:
    nulls = np.array(np.ma.getmaskarray(values)) if isinstance(values, np.ma.MaskedArray) else None
    plain: Array = np.ma.getdata(values)
    if field.dtype is object or plain.dtype.kind not in _KINDS[field.dtype]:
        if field.dtype is object and plain.dtype.kind == "U" and nulls is None:
            return Column(plain.astype(object), None)
        raise _refusal(field, str(plain.dtype))
    if nulls is not None and nulls.any():
        if not field.masked:
            raise _refusal(field, f"a null at position {int(nulls.argmax())}")
        plain = np.where(nulls, np.zeros(1, plain.dtype), plain)
    if plain.dtype == np.uint64 and len(plain) and plain.max() > _GREATEST:
        raise _refusal(field, f"{int(plain.max())}, more than 64 bits with a sign hold")
    wide = plain.astype(field.dtype)
    if field.dtype is np.float64 and plain.dtype.kind in "iu":
        wrong = [value for value in plain.tolist() if int(float(value)) != value] if _is_large(plain) else []
        if wrong:
            raise _refusal(field, f"{wrong[0]}, which a float would round")
    if not field.masked:
        return Column(np.ascontiguousarray(wide), None)
    return Column(np.ascontiguousarray(wide), np.zeros(len(wide), np.bool_) if nulls is None else nulls)


def _is_large(numbers: Array) -> bool:
    """Whether there are ints that a float may not hold."""
    return bool(len(numbers)) and (int(numbers.max()) > 2**53 or int(numbers.min()) < -(2**53))


def _check_texts(values: Array, field: ColumnField) -> None:
    for value in values:
        if type(value) is not str and not (field.nullable and value is None):
            raise _refusal(field, repr(value)[:100])


def _refusal(field: ColumnField, found: str) -> StateTypeError:
    kind = "str" if field.dtype is object else np.dtype(field.dtype).name
    what = f"field {field.name!r}" if field.name else "it"
    return StateTypeError(
        f"{what} is a column of {kind}, which does not take {found}: convert it first (cast, fill_null, astype)",
        field=field.name or None,
        expected=kind,
        found=found,
    )
