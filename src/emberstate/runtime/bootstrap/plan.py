"""`BootstrapPlan`: which columns of a table become which states of a savepoint.

A column, or two, of the table give the content of a state, key by key. The states are those that a function declares,
or descriptors. A null, an empty list and an empty map give nothing; so a key may have several rows for different
states, and a union puts tables together. Content that is given twice is rejected.

    value, reducing      a column of values
    aggregating          a column of accumulators
    list                 a column of lists
    map                  a column of maps; or a column of user keys and one of their values, a row for each

`checkpoint.offline.typed_values` converts plain values to the declared types. Timers, broadcast state, and state of
windows cannot be made this way.

Thread safety: a plan is immutable, and travels; what reads rows belongs to one thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from emberstate.checkpoint.offline.draft import (
    SavepointDraft,
)
from emberstate.checkpoint.offline.typed_values import typed_maker
from emberstate.clock import SystemClock
from emberstate.errors import RowTypeError, StateDeclarationError, StateTypeError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeySchema
from emberstate.runtime.functions.function import KeyedBroadcastProcessFunction, KeyedCoProcessFunction, ProcessFunction
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.arrow_rows import columns_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.rows.times import to_micros
from emberstate.state.descriptors import MapStateDescriptor, StateDescriptor

States = ProcessFunction | Sequence[StateDescriptor]
Columns = Mapping[str, str | tuple[str, str]]

_BATCH_ROWS = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapPlan:
    """Which columns of which rows become which states of which savepoint."""

    draft: SavepointDraft
    row_type: RowType
    key_columns: tuple[str, ...]
    #: By state: its column, or those of user keys and values.
    columns: Mapping[str, tuple[str, ...]]


def plan_bootstrap(
    row_type: RowType,
    name: str,
    *,
    job: str,
    operator: str,
    states: States,
    key: str | Sequence[str],
    columns: Columns | None = None,
    max_parallelism: int = DEFAULT_MAX_PARALLELISM,
    written_at: datetime | None = None,
) -> BootstrapPlan:
    """Check that rows of `row_type` can become the savepoint; see `bootstrap_savepoint` for the arguments."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    types = [row_type.columns[row_type.position(column)].type.name for column in keys]
    schema = KeySchema(types)
    declared = _declared(states, operator, row_type, keys, max_parallelism)
    chosen = _chosen_columns(row_type, keys, declared, columns)
    micros = SystemClock().now_micros() if written_at is None else to_micros(written_at, "written_at")
    draft = SavepointDraft(
        name=name,
        job=job,
        operator=operator,
        key_schema=schema,
        max_parallelism=max_parallelism,
        states=tuple(declared[state] for state in chosen),
        written_at=micros,
    )
    plan = BootstrapPlan(draft=draft, row_type=row_type, key_columns=keys, columns=chosen)
    RowContents(plan)  # refuses states that no column can hold
    return plan


def needed_columns(names: Sequence[str], key: str | Sequence[str], columns: Columns | None) -> list[str]:
    """The columns of a table that a bootstrap reads: of all columns there are, those of key and states."""
    keys = [key] if isinstance(key, str) else list(key)
    given = () if columns is None else columns.values()
    states = names if columns is None else [c for one in given for c in ((one,) if isinstance(one, str) else one)]
    wanted = list(dict.fromkeys([*keys, *states]))
    for name in wanted:
        if name not in names:
            raise StateDeclarationError(f"there is no column {name!r}; there are {list(names)}", column=name)
    return wanted


class RowContents:
    """Reads keys and the content of their states from record batches of a plan's rows."""

    def __init__(self, plan: BootstrapPlan) -> None:
        self._row_type = plan.row_type
        self._keys = [plan.row_type.position(column) for column in plan.key_columns]
        self._key_columns = plan.key_columns
        self._reads = [
            (state.name, [plan.row_type.position(column) for column in plan.columns[state.name]], _reader(state))
            for state in plan.draft.states
        ]

    def read(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, dict[str, Any]]]:
        """(key, content by state) for every row; a row may have no content."""
        columns = columns_of(batch, self._row_type)
        keys = [columns[position] for position in self._keys]
        for row, values in enumerate(zip(*columns, strict=True)):
            key = keys[0][row] if len(keys) == 1 else tuple(column[row] for column in keys)
            if key is None or (len(keys) > 1 and None in key):
                raise RowTypeError(
                    f"a row has no key: {', '.join(self._key_columns)} is {key!r}, in {values!r:.300}. Filter such "
                    f"rows out first",
                    column=next(name for name, part in zip(self._key_columns, keys, strict=True) if part[row] is None),
                )
            contents = {}
            for name, positions, read in self._reads:
                try:
                    content = read(*(values[position] for position in positions))
                except StateTypeError as error:
                    raise error.reworded(f"key {key!r:.200}: {error}").located(state=name, key=key) from None
                if content is not None:
                    contents[name] = content
            yield key, contents


# -- parts ----------------------------------------------------------------------------------------------------


def _declared(
    states: States, operator: str, row_type: RowType, key_columns: tuple[str, ...], max_parallelism: int
) -> dict[str, StateDescriptor]:
    """The keyed states, by name."""
    if not isinstance(states, ProcessFunction):
        for state in states:
            if not isinstance(state, StateDescriptor):
                raise StateDeclarationError(
                    f"states are a function, such as RepeatedCard(), or descriptors; found {state!r:.100}",
                    option="states",
                )
        names = [state.name for state in states]
        if len(set(names)) != len(names):
            raise StateDeclarationError(f"states have different names; found {names}", option="states", found=names)
        return {state.name: state for state in states}
    inputs = 2 if isinstance(states, KeyedCoProcessFunction) else 1
    keys = RowType(row_type.columns[row_type.position(column)] for column in key_columns)
    stage = StageSpec(
        name=operator,
        function=states,
        inputs=(KeyedInput(keys, key_columns),) * inputs,
        broadcast=keys if isinstance(states, KeyedBroadcastProcessFunction) else None,
        output=None,
        side_outputs={},
        late_output=None,
        out_of_orderness="0 seconds",
        parallelism=1,
        max_parallelism=max_parallelism,
    )
    template = stage.open_template()  # states may be asked for in open(), too
    try:
        registered = template.backend.registered_states
        return {
            name: state.descriptor
            for name, state in registered.items()
            if state.namespace_codec.schema.kind == "str"  # windows have others
        }
    finally:
        template.close()


def _chosen_columns(
    row_type: RowType,
    key_columns: tuple[str, ...],
    declared: Mapping[str, StateDescriptor],
    columns: Columns | None,
) -> dict[str, tuple[str, ...]]:
    if columns is None:
        others = [name for name in row_type.names if name not in key_columns]
        unknown = [name for name in others if name not in declared]
        if unknown:
            raise StateDeclarationError(
                f"columns {unknown} are no states; there are {sorted(declared)}. Say in columns={{…}} which column "
                f"is for which state, or drop them",
                column=unknown[0],
                option="columns",
            )
        columns = {name: name for name in others}
    if not columns:
        what = "no column is for a state: there would be nothing in the savepoint"
        raise StateDeclarationError(what, option="columns")
    chosen: dict[str, tuple[str, ...]] = {}
    for state, given in columns.items():
        names = (given,) if isinstance(given, str) else tuple(given)
        if state not in declared:
            raise StateDeclarationError(
                f"there is no state {state!r} that a savepoint can be made with; there are {sorted(declared)}",
                state=state,
                option="columns",
            )
        if len(names) != 1 and (len(names) != 2 or not isinstance(declared[state], MapStateDescriptor)):
            raise StateDeclarationError(
                f"{declared[state].kind} state {state!r} is given the columns {list(names)}: it takes one; a map takes "
                f"one, or a column of user keys and one of values",
                state=state,
                option="columns",
            )
        for name in names:
            row_type.position(name)
        chosen[state] = names
    return chosen


def _reader(state: StateDescriptor) -> Callable[..., Any]:
    """Return a function from the cells of a row to the content of a state, None for nothing."""
    what = f"{state.kind} state {state.name!r}"
    make = typed_maker(state.codec, what)
    if isinstance(state, MapStateDescriptor):
        return _map_reader(typed_maker(state.key_codec, f"user key of {what}"), make, what)

    def read_value(cell: Any) -> Any:
        return None if cell is None else make(cell)

    def read_list(cell: Any) -> Any:
        if cell is None:
            return None
        if not isinstance(cell, list):
            raise StateTypeError(f"{what} takes a list, found {cell!r:.200}")
        if None in cell:
            raise StateTypeError(f"{what} takes no null among its elements, found {cell!r:.200}")
        return [make(element) for element in cell] or None

    return read_list if state.kind == "list" else read_value


def _map_reader(make_key: Callable[[Any], Any], make: Callable[[Any], Any], what: str) -> Callable[..., Any]:
    def make_value(cell: Any) -> Any:
        return None if cell is None else make(cell)

    def read_map(*cells: Any) -> Any:
        if len(cells) == 2:
            user_key, value = cells
            if user_key is None:
                if value is not None:
                    raise StateTypeError(f"{what} has a value without a user key: {value!r:.200}")
                return None
            return {make_key(user_key): make_value(value)}
        if cells[0] is None:
            return None
        if not isinstance(cells[0], dict):
            raise StateTypeError(f"{what} takes a map, found {cells[0]!r:.200}")
        return {make_key(user_key): make_value(value) for user_key, value in cells[0].items()} or None

    return read_map
