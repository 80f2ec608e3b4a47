"""An input of a keyed operator: the type of its rows, their key and event time, and how a record batch becomes rows.

A record batch has the input's columns. It may also have the key groups that Spark computed, in `__key_group`, and the
origins of rows that another stage emitted. Two inputs share one batch, so that both are in order of time: the column
`__input` says which (0 or 1), and the rows are structs in `__row0` and `__row1`.

A row whose key has a null belongs to no key group: `read` rejects it, `without_null_keys` drops and counts it.

Thread safety: immutable values and pure functions.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.errors import RowTypeError, StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.runtime.rows.arrow_rows import columns_of, data_type, rows_of
from emberstate.runtime.rows.columns import (
    INPUT_COLUMN,
    KEY_GROUP_COLUMN,
    LATEST_COLUMN,
    ORIGIN_COLUMN,
    REACHED_COLUMN,
    ROW_COLUMNS,
    ROWS_COLUMN,
)
from emberstate.runtime.rows.emissions import Origin
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.row_batches import make_rows
from emberstate.runtime.rows.row_shape import RowShape
from emberstate.runtime.rows.times import FIRST_TIME, LAST_TIME
from emberstate.units import Duration

#: Keys of these types may have several forms, or be no keys (NaN): each is normalised.
_LOOKED_AT: Final = ("double", "decimal")


@dataclasses.dataclass(frozen=True, slots=True)
class InputRows:
    """Rows, as objects or still as columns, with key, key group and time of each."""

    keys: list[Any]
    #: int32, int64; the latter None without event time.
    groups: memoryview
    times: memoryview | None
    made: list[Any] | None
    columns: list[list[Any]]
    #: A class of tuples, or a `RowMaker`.
    row_class: Any
    #: Key and time that another stage emitted each row for; None if the rows come from no stage.
    origins: list[Origin] | None = None
    #: If rows stand for others: how many these are all together, and the latest time of those of each row.
    stands_for: int | None = None
    latest: memoryview | None = None
    #: The same rows with all columns, if the function gets only some and others may be asked for.
    whole: InputRows | None = None

    def rows(self) -> list[Any]:
        """The rows."""
        return make_rows(self.row_class, self.columns, len(self.keys)) if self.made is None else self.made

    def whole_rows(self) -> list[Any]:
        """The rows with all columns that came."""
        return self.rows() if self.whole is None else self.whole.rows()

    def whole_row(self, position: int) -> Any:
        """One of them."""
        data = self if self.whole is None else self.whole
        if data.made is not None:
            return data.made[position]
        return make_rows(data.row_class, [[column[position]] for column in data.columns], 1)[0]

    @classmethod
    def of_one(cls, row: Any, key: Any, group: int, time: int | None) -> InputRows:
        """One row."""
        if time is not None and not FIRST_TIME <= time <= LAST_TIME:
            raise RowTypeError(f"the event time {time} of row {row!r:.200} lies outside the years 1 to 9999", key=key)
        times = None if time is None else memoryview(array("q", [time]))
        return cls([key], memoryview(array("i", [group])), times, [row], [], tuple)


class KeyedInput:
    """The rows of one input."""

    __slots__ = ("event_time", "keeps_whole", "key_columns", "out_of_orderness", "row_type", "shape", "zone")

    def __init__(
        self,
        row_type: RowType | str,
        key_columns: Sequence[str],
        *,
        event_time: str | None = None,
        zone: str | None = None,
        out_of_orderness: Duration | None = None,
        shape: RowShape | None = None,
        keeps_whole: bool = True,
    ) -> None:
        """Rows of `row_type`, by key.

        `zone` is the time zone of a TIMESTAMP_NTZ event time. An input without `out_of_orderness` uses the
        operator's. `shape` is what the function gets of a row; with `keeps_whole`, `InputRows` has all of it too.
        """
        self.row_type = RowType.of(row_type)
        self.key_columns = tuple(key_columns)
        self.event_time = event_time
        self.zone = zone
        self.out_of_orderness = out_of_orderness
        self.shape = shape
        self.keeps_whole = keeps_whole
        for column in self.key_columns:
            self.row_type.position(column)
        if event_time is not None:
            kind = self.row_type.columns[self.row_type.position(event_time)].type.kind
            if kind not in ("timestamp", "timestamp_ntz"):
                what = f"event time {event_time!r} must be a timestamp, it is {kind}: cast it"
                raise StateDeclarationError(what, column=event_time)
            if kind == "timestamp_ntz" and zone is None:
                raise StateDeclarationError(
                    f"event time {event_time!r} is a timestamp_ntz, a wall clock's reading: say of which zone it is",
                    column=event_time,
                )

    def shaped(self, shape: RowShape | None, keeps_whole: bool) -> KeyedInput:
        """The input with only the columns that rows of this shape, key and time need, or with all of them."""
        row_type = self.row_type
        if shape is not None and not keeps_whole:
            needed = {*shape.columns, *self.key_columns, self.event_time}
            row_type = RowType(column for column in row_type.columns if column.name in needed)
        return KeyedInput(
            row_type,
            self.key_columns,
            event_time=self.event_time,
            zone=self.zone,
            out_of_orderness=self.out_of_orderness,
            shape=shape,
            keeps_whole=keeps_whole,
        )

    def read(self, batch: pa.RecordBatch, key_schema: KeySchema, grouper: Callable[[Any], int]) -> InputRows:
        """Return the rows of a batch; rejects null keys and event times, and nulls that the shape does not take."""
        self.check_columns(batch)
        shape, whole_type = self.shape, self.row_type
        if shape is not None and not self.keeps_whole:  # a time that the function does not get stays as it is
            read = {*shape.columns, *self.key_columns}
            whole_type = RowType(column for column in whole_type.columns if column.name in read)
        columns = columns_of(batch, whole_type)
        keys = self._keys(batch, [columns[whole_type.position(name)] for name in self.key_columns], key_schema)
        if KEY_GROUP_COLUMN in batch.schema.names:
            groups = _ints(batch.column(KEY_GROUP_COLUMN), "int32", "i")
        else:
            groups = memoryview(array("i", [grouper(key) for key in keys]))
        origins = None
        if ORIGIN_COLUMN in batch.schema.names:
            parts = (batch.column(name).to_pylist() for name in (ORIGIN_COLUMN, REACHED_COLUMN))
            origins = list(zip(*parts, strict=True))
        names = batch.schema.names
        data = InputRows(
            keys,
            groups,
            self.times(batch),
            None,
            columns,
            whole_type.row_class,
            origins,
            rows_stood_for(batch) if ROWS_COLUMN in names else None,
            self.latest(batch),
        )
        if shape is None:
            return data
        self.check_nulls(batch)
        return dataclasses.replace(
            data,
            columns=[columns[whole_type.position(name)] for name in shape.columns],
            row_class=shape.maker,
            whole=data if self.keeps_whole else None,
        )

    def check_columns(self, batch: pa.RecordBatch) -> None:
        """Raise unless a batch has the columns of the input."""
        for column in self.row_type.columns:
            if column.name not in batch.schema.names:
                what = f"a batch has no column {column.name!r}, it has {batch.schema.names}"
                raise RowTypeError(what, column=column.name)
            found = data_type(batch.schema.field(column.name).type, column.name)
            if _without_nullability(found) != _without_nullability(column.type):
                what = f"column {column.name!r} of a batch is {found.name}, declared is {column.type.name}"
                raise RowTypeError(what, column=column.name)

    def check_nulls(self, batch: pa.RecordBatch) -> None:
        """Raise for a null that the shape does not take."""
        if self.shape is not None:
            self.shape.check_nulls(batch, lambda position: self._shown(batch, position))

    def key_groups(self, batch: pa.RecordBatch) -> memoryview | None:
        """Return the key groups that came with a batch; None if there are none, or if a key is null."""
        null = any(batch.column(name).null_count for name in self.key_columns if name in batch.schema.names)
        if null or KEY_GROUP_COLUMN not in batch.schema.names:
            return None
        return _ints(batch.column(KEY_GROUP_COLUMN), "int32", "i")

    def _keys(self, batch: pa.RecordBatch, parts: list[list[Any]], key_schema: KeySchema) -> list[Any]:
        for name, part in zip(self.key_columns, parts, strict=True):
            if batch.column(name).null_count:
                raise RowTypeError(
                    f"key column {name!r} is null in row {self._shown(batch, part.index(None))}: null is no key; "
                    f'filter such rows out, give them a key, or have a pipeline drop and count them: '
                    f'key_by(…, null_keys="drop")',
                    column=name,
                )
        keys = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
        if any(name.startswith(_LOOKED_AT) for name in key_schema.type_names):
            return [key_schema.normalise(key) for key in keys]
        return keys

    def times(self, batch: pa.RecordBatch) -> memoryview | None:
        """Return the event times of a batch's rows in microseconds, None if there are none; rejects nulls."""
        if self.event_time is None:
            return None
        times = batch.column(self.event_time)
        if times.null_count:
            position = times.to_pylist().index(None)
            raise RowTypeError(
                f"event time {self.event_time!r} is null in row {self._shown(batch, position)}: filter such rows "
                f"out, or give them a time",
                column=self.event_time,
            )
        return self._micros(times)

    def latest(self, batch: pa.RecordBatch) -> memoryview | None:
        """Return the greatest time that each row stands for, if that is not its time."""
        return self._micros(batch.column(LATEST_COLUMN)) if LATEST_COLUMN in batch.schema.names else None

    def _micros(self, times: pa.Array) -> memoryview:
        micros = times.cast(pa.timestamp("us", times.type.tz))
        if self.zone is not None and times.type.tz is None:
            return _ints(_of_wall_clock(micros, self.zone), "int64", "q")
        return _ints(micros.view("int64"), "int64", "q")

    def _shown(self, batch: pa.RecordBatch, position: int) -> str:
        return f"{rows_of(batch.slice(position, 1), self.row_type)[0]!r:.500}"


def rows_stood_for(batch: pa.RecordBatch) -> int:
    """Return how many input rows the rows of a batch stand for."""
    if ROWS_COLUMN not in batch.schema.names:
        return len(batch)
    return pc.sum(batch.column(ROWS_COLUMN)).as_py() or 0


def _of_wall_clock(readings: pa.Array, zone: str) -> pa.Array:
    """Return the moments of wall-clock readings, in microseconds, by the rule of Spark, Java and Python.

    A reading that the clock shows twice means the first. A reading that the clock skips is moved on by the length of
    the gap: half past two, where two becomes three, is half past three.
    """
    # Arrow gives the last moment before the gap for a skipped reading: add what is missing.
    moments = pc.assume_timezone(readings, zone, ambiguous="earliest", nonexistent="earliest")
    missing = pc.subtract(readings.view("int64"), pc.local_timestamp(moments).view("int64"))
    return pc.add(moments.view("int64"), missing)


def _ints(column: pa.Array, type_: str, layout: str) -> memoryview:
    """Return a column of ints without nulls as memory."""
    if column.null_count:
        raise RowTypeError("a row has no key group", column=KEY_GROUP_COLUMN)
    column = column.cast(type_)
    start = column.offset
    if not len(column):
        return memoryview(array(layout))
    return memoryview(column.buffers()[1]).cast("B").cast(layout)[start : start + len(column)]  # type: ignore[call-overload, no-any-return]


def _without_nullability(type_: Any) -> Any:
    return type_.name


def read_two(
    batch: pa.RecordBatch, inputs: Sequence[KeyedInput], key_schema: KeySchema, grouper: Callable[[Any], int]
) -> tuple[InputRows, list[int]]:
    """Return the rows of a batch of two inputs, in order, and the number of each row's input."""
    which = batch.column(INPUT_COLUMN)
    parts = []
    for number, name in enumerate(ROW_COLUMNS):
        mask = pc.equal(which, number)
        structs = batch.column(name).filter(mask)
        arrays, names = structs.flatten(), [field.name for field in structs.type]
        if KEY_GROUP_COLUMN in batch.schema.names:
            arrays, names = [*arrays, batch.column(KEY_GROUP_COLUMN).filter(mask)], [*names, KEY_GROUP_COLUMN]
        one = pa.RecordBatch.from_arrays(arrays, names=names)
        parts.append(inputs[number].read(one, key_schema, grouper))
    order = which.to_pylist()
    untimed = any(part.times is None for part in parts)
    merged = InputRows(
        _merged(order, [part.keys for part in parts]),
        memoryview(array("i", _merged(order, [part.groups for part in parts]))),
        None if untimed else memoryview(array("q", _merged(order, [part.times for part in parts]))),
        _merged(order, [part.rows() for part in parts]),
        [],
        tuple,
    )
    if any(part.whole is not None for part in parts):
        whole = dataclasses.replace(merged, made=_merged(order, [part.whole_rows() for part in parts]))
        merged = dataclasses.replace(merged, whole=whole)
    return merged, order


def _merged(order: list[int], lists: list[Any]) -> list[Any]:
    iterators = [iter(values) for values in lists]
    return [next(iterators[number]) for number in order]


def without_null_keys(batch: pa.RecordBatch, inputs: Sequence[KeyedInput]) -> tuple[pa.RecordBatch, int]:
    """Return the batch without rows whose key has a null, and how many input rows those stood for.

    >>> batch = pa.record_batch({"card": ["a", None, "b"], "amount": [1, 2, 3]})
    >>> rows, dropped = without_null_keys(batch, [KeyedInput("card string, amount bigint", ["card"])])
    >>> rows.column("amount").to_pylist(), dropped
    ([1, 3], 1)
    """
    null = _null_keys(batch, inputs)
    if null is None or not pc.any(null).as_py():
        return batch, 0
    return batch.filter(pc.invert(null)), rows_stood_for(batch.filter(null))


def _null_keys(batch: pa.RecordBatch, inputs: Sequence[KeyedInput]) -> pa.BooleanArray | None:
    found = None
    if len(inputs) == 1:
        columns = [batch.column(name) for name in inputs[0].key_columns if name in batch.schema.names]
        for column in columns:
            if column.null_count:
                found = column.is_null() if found is None else pc.or_(found, column.is_null())
        return found
    which = batch.column(INPUT_COLUMN)
    for number, (name, input) in enumerate(zip(ROW_COLUMNS, inputs, strict=True)):
        rows = batch.column(name)
        for key in input.key_columns:
            null = pc.and_(pc.equal(which, number), pc.struct_field(rows, key).is_null())
            found = null if found is None else pc.or_(found, null)
    return found
