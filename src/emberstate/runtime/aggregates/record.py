"""The record of a stage: the accumulators of all aggregates `in_record`, for one key and window.

It is a frozen dataclass made at run time, with the columns of partial rows as its fields, so it is stored as a map by
field name: an aggregate that was added starts empty where the stored record has none, one that was removed is left
out, and one of another type has the codec's verdict. The class is made once per process and set of columns, and is
never pickled. A stage that has no aggregate `in_record` keeps a count of rows instead: it says that there were any.

The record of a session has its bounds and its phase too (`SESSION`), which are null but in columns (`session_columns`).

A sum that its type cannot hold raises; it never wraps or rounds.

Thread safety: pure functions of immutable values.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from emberstate.runtime.aggregates.accumulators import Values, merger, reader
from emberstate.runtime.aggregates.spec import ROWS, AggregateSpec
from emberstate.runtime.rows.data_types import Column, DataType
from emberstate.runtime.rows.row import python_type
from emberstate.state.states import AggregateFunction

#: The only column of a record without aggregates.
ROW_COUNT: Final = Column("rows", DataType("bigint"), nullable=False)
#: The last columns of the record of a session.
SESSION: Final = tuple(Column(name, DataType("bigint")) for name in ("_start", "_end", "_phase"))


@functools.cache
def record_class(columns: tuple[Column, ...]) -> type[Any]:
    """The class of records with these columns; nullable ones start as None, counts at 0.

    >>> record_class((Column("n", DataType("bigint"), nullable=False), Column("total", DataType("double"))))()
    Record(n=0, total=None)
    """
    fields = [(c.name, python_type(c), dataclasses.field(default=None if c.nullable else 0)) for c in columns]
    return dataclasses.make_dataclass("Record", fields, frozen=True, slots=True, namespace={"__module__": __name__})


class RecordFunction(AggregateFunction[Any, Any, list[Any]]):
    """Merges partial rows into records, and records into one another.

    The result has a place for every aggregate of the stage; those that have a state of their own are None in it.
    """

    def __init__(self, spec: AggregateSpec) -> None:
        self.spec = spec
        columns = spec.record or (ROW_COUNT,)
        is_merging = spec.window is not None and spec.window.assigner.is_merging
        self.record_class = record_class((*columns, *SESSION) if is_merging else columns)
        self._names = tuple(column.name for column in columns)
        self._values: Callable[[Any], tuple[Any, ...]] = values_of(self._names)
        partial = spec.partial
        self._positions = tuple(partial.position(c.name) for c in spec.record) or (partial.position(ROWS),)
        self._mergers, self._readers = _plan(spec)

    def create_accumulator(self) -> Any:
        """A record with nothing in it."""
        return self.record_class()

    def add(self, value: Any, accumulator: Any) -> Any:
        """The record with a partial row merged in."""
        return self._merged(accumulator, [value[position] for position in self._positions])

    def merge(self, one: Any, other: Any) -> Any:
        """Two records as one; `one` is the older, where it matters."""
        return self._merged(one, self._values(other))

    def get_result(self, accumulator: Any) -> list[Any]:
        """The result of each aggregate."""
        values = self._values(accumulator)
        return [read(values) for read in self._readers]

    def _merged(self, record: Any, values: Values) -> Any:
        merged = list(self._values(record))
        for merge in self._mergers:
            merge(merged, values)
        return self.record_class(*merged)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordFunction) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(self._names)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordFunction, (self.spec,)


def values_of(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """The function that returns the values of a record's fields."""
    if len(names) == 1:
        return lambda record: (getattr(record, names[0]),)
    return operator.attrgetter(*names)


Merge = Callable[[list[Any], Sequence[Any]], None]
Read = Callable[[Sequence[Any]], Any]


def _plan(spec: AggregateSpec) -> tuple[list[Merge], list[Read]]:
    """How values are merged, and how the result of each aggregate is read from them."""
    mergers: list[Merge] = []
    readers: list[Read] = []
    at = 0
    for name, aggregate in spec.aggregates:
        if not aggregate.in_record:
            readers.append(_nothing)
            continue
        mergers.append(merger(name, aggregate, spec.input, at))
        readers.append(reader(aggregate, spec.input, at))
        at += len(aggregate.partial(name, spec.input))
    return mergers or [_count_rows], readers


def _nothing(values: Sequence[Any]) -> None:
    return None


def _count_rows(values: list[Any], other: Sequence[Any]) -> None:
    values[0] += other[0]
