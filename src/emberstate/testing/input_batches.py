"""Turns rows of a test into record batches, one for each slot, in order of event time.

Rows that have the same time stay in the order in which they were given; without event time all do.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from emberstate.errors import RowTypeError
from emberstate.keygroups import slot_for_key_group
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.columns import INPUT_COLUMN, KEY_GROUP_COLUMN, ROW_COLUMNS
from emberstate.runtime.rows.keyed_input import InputRows
from emberstate.runtime.rows.row import RowType

_Place = tuple[int, int]  # which input, and the row's position there


def coerced(rows: Iterable[Any], row_type: RowType, what: str) -> list[tuple[Any, ...]]:
    """Rows as tuples in the order of the columns; a dict is taken by name."""
    try:
        return [tuple(row_type.coerce(row)) for row in rows]
    except RowTypeError as error:
        raise error.reworded(f"{what}: {error}") from None


def record_batch(rows: list[tuple[Any, ...]], row_type: RowType, what: str) -> pa.RecordBatch:
    """A record batch of rows; RowTypeError, naming column and row, for a value of the wrong type."""
    try:
        return batch_of(rows, row_type)
    except RowTypeError as error:
        raise error.reworded(f"{what}: {error}") from None


def batches_by_slot(rows: Sequence[list[tuple[Any, ...]]], spec: StageSpec) -> list[pa.RecordBatch | None]:
    """For every slot the batch of its rows, or None if it has none; `rows` has a list for each input."""
    grouper = spec.key_schema.key_grouper(spec.max_parallelism)
    batches, data = [], []
    for number, (input, of_input) in enumerate(zip(spec.inputs, rows, strict=True), start=1):
        batch = record_batch(of_input, input.row_type, f"a row of input {number}")
        batches.append(batch)
        data.append(input.read(batch, spec.key_schema, grouper))
    places: list[list[_Place]] = [[] for _ in range(spec.parallelism)]
    for place in _in_order(data):
        group = data[place[0]].groups[place[1]]
        places[slot_for_key_group(spec.max_parallelism, spec.parallelism, group)].append(place)
    make = _single if len(batches) == 1 else _joined
    return [make(batches, data, of_slot) if of_slot else None for of_slot in places]


def _in_order(data: list[InputRows]) -> list[_Place]:
    places = [(number, position) for number, part in enumerate(data) for position in range(len(part.keys))]
    timed = [part.times for part in data]
    if any(times is None for times in timed):
        return places
    return sorted(places, key=lambda place: timed[place[0]][place[1]])  # type: ignore[index]


def _groups(data: list[InputRows], places: list[_Place]) -> pa.Array:
    return pa.array([data[number].groups[position] for number, position in places], pa.int32())


def _single(batches: list[pa.RecordBatch], data: list[InputRows], places: list[_Place]) -> pa.RecordBatch:
    batch = batches[0].take(pa.array([position for _, position in places], pa.int64()))
    return pa.RecordBatch.from_arrays(
        [*batch.columns, _groups(data, places)], names=[*batch.schema.names, KEY_GROUP_COLUMN]
    )


def _joined(batches: list[pa.RecordBatch], data: list[InputRows], places: list[_Place]) -> pa.RecordBatch:
    """Both inputs in one batch: a struct for each, null where the row is the other's."""
    structs = []
    for number, batch in enumerate(batches):
        whole = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        chosen = [position if of == number else None for of, position in places]
        structs.append(whole.take(pa.array(chosen, pa.int64())))
    which = pa.array([number for number, _ in places], pa.int32())
    return pa.RecordBatch.from_arrays(
        [which, *structs, _groups(data, places)], names=[INPUT_COLUMN, *ROW_COLUMNS, KEY_GROUP_COLUMN]
    )
