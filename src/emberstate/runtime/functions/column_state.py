"""`ColumnState`: what `process_arrow` reads and writes: a declared state, by the handles of a batch's keys.

A state of one value has `get_many`, `put_many` and `add_at`; so has each field of a state of records, `state["field"]`.
All work on a copy of the entries of the batch's keys (`column_access`), which is loaded when the state is first used in
a batch, and stored after the function has returned.

Handles may repeat: `put_many` keeps the last of the values given for a key, `add_at` adds all of them, in order.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from emberstate.errors import LifecycleError, StateTypeError
from emberstate.heap.columns.folds import add_floats, add_ints
from emberstate.heap.columns.layout import Column, ColumnField, ColumnLayout
from emberstate.runtime.functions.batch_keys import Array, BatchKeys, Handles
from emberstate.runtime.functions.column_access import BatchColumns, ColumnAccess, TableAccess, ValueAccess
from emberstate.runtime.functions.column_values import given_values
from emberstate.runtime.functions.context import FunctionContext
from emberstate.state.descriptors import ValueStateDescriptor


def column_state_of(descriptor: ValueStateDescriptor[Any], context: FunctionContext) -> ColumnState:
    """The state of a declaration, in a column table if the backend has such tables."""
    table = context.get_column_state(descriptor)
    if table is not None:
        return ColumnState(descriptor.name, TableAccess(descriptor, table, context.backend.ttl_clock))
    state = context.get_internal_state(descriptor)
    return ColumnState(descriptor.name, ValueAccess(descriptor, state, context.backend.context))


class ColumnState:
    """A declared state in columns."""

    __slots__ = ("_access", "_columns", "_keys", "_loaded", "name")

    def __init__(self, name: str, access: ColumnAccess) -> None:
        self.name = name
        self._access = access
        self._columns = {
            field.name: StateColumn(self, field, position) for position, field in enumerate(access.layout.fields)
        }
        self._keys: BatchKeys | None = None
        self._loaded: BatchColumns | None = None

    # -- for functions ---------------------------------------------------------------------------------------

    def get_many(self, handles: npt.ArrayLike) -> Any:
        """Return the values of the handles' keys as a NumPy array; of records, a dict of arrays by field."""
        single = self._columns.get("")
        if single is not None:
            return single.get_many(handles)
        return {name: column.get_many(handles) for name, column in self._columns.items()}

    def put_many(self, handles: npt.ArrayLike, values: Any) -> None:
        """Set the values of the handles' keys; of records, values are a dict with an array for each field."""
        single = self._columns.get("")
        if single is not None:
            single.put_many(handles, values)
            return
        if not isinstance(values, Mapping) or values.keys() != self._columns.keys():
            found = list(values) if isinstance(values, Mapping) else type(values).__name__
            raise StateTypeError(
                f"{self!r} holds records: put_many takes a dict with the fields {list(self._columns)}, found {found}; "
                f"for one field, write state[field].put_many(handles, values)",
                state=self.name,
                expected=list(self._columns),
                found=found,
            )
        places = self.checked(handles)
        columns = [(self._columns[name], self._columns[name].given(values[name], len(places))) for name in values]
        for column, given in columns:  # all are right: none is set unless all are
            column.set(places, given)

    def add_at(self, handles: npt.ArrayLike, values: Any) -> None:
        """Add to the values of the handles' keys, one after the other, whatever repeats; of one field, of records."""
        single = self._columns.get("")
        if single is None:
            raise StateTypeError(
                f"{self!r} holds records: say which field, state[field].add_at(handles, values), of "
                f"{list(self._columns)}",
                state=self.name,
                expected=list(self._columns),
            )
        single.add_at(handles, values)

    def contains_many(self, handles: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Return which of the handles' keys have a value or record."""
        places = self.checked(handles)
        return self.loaded.present[places]

    def remove_many(self, handles: npt.ArrayLike) -> None:
        """Remove the values or records of the handles' keys, which then read as the default."""
        places, loaded = self.checked(handles), self.loaded
        loaded.reset(places, self._access.default)
        loaded.changed[places] = True
        loaded.present[places] = False

    def __getitem__(self, field: str) -> StateColumn:
        """A field of the records."""
        column = self._columns.get(field) if field else None
        if column is None:
            fields = [name for name in self._columns if name]
            what = f"it has {fields}" if fields else "it holds plain values, which have no fields"
            raise StateTypeError(
                f"{self!r} has no field {field!r}: {what}", state=self.name, field=str(field), expected=fields
            )
        return column

    def __repr__(self) -> str:
        return f"<column state {self.name!r}>"

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            f"{self!r} cannot be pickled or copied: it belongs to the backend of one process", state=self.name
        )

    # -- for the operator ------------------------------------------------------------------------------------

    def begin(self, keys: BatchKeys) -> None:
        """Let the state be used with the handles of a batch."""
        self._keys = keys
        self._loaded = None

    def store(self) -> None:
        """Write what was changed."""
        if self._keys is not None and self._loaded is not None:
            self._access.store(self._keys, self._loaded)

    def end(self) -> None:
        """Let the state not be used any more."""
        self._keys = self._loaded = None

    # -- for its columns -------------------------------------------------------------------------------------

    @property
    def layout(self) -> ColumnLayout:
        """The columns."""
        return self._access.layout

    @property
    def loaded(self) -> BatchColumns:
        """The entries of the current batch's keys."""
        keys = self.keys
        if self._loaded is None:
            self._loaded = self._access.load(keys)
        return self._loaded

    @property
    def keys(self) -> BatchKeys:
        """The keys of the current batch."""
        if self._keys is None:
            raise LifecycleError(
                f"{self!r} was used outside process_arrow: handles belong to one batch, use the state while that "
                f"batch is handled",
                state=self.name,
                expected="process_arrow",
            )
        return self._keys

    def checked(self, handles: Any) -> Array:
        """The handles as positions in the columns; raises unless they are of this batch."""
        keys = self.keys
        if isinstance(handles, Handles) and handles.keys is not None and handles.keys is not keys:
            raise LifecycleError(
                f"{self!r}: the handles are those of another batch: a handle stands for another key there. Use "
                f"keys.handles and keys.distinct of the batch that is handled.",
                state=self.name,
            )
        if handles is keys.handles or handles is keys.distinct:
            return np.asarray(handles)
        found = np.asarray(handles)
        if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
            raise StateTypeError(
                f"{self!r}: handles are a one-dimensional array of ints, found {found.dtype} of shape {found.shape}; "
                f"for a mask write keys.handles[mask]",
                state=self.name,
                expected="handles",
                found=str(found.dtype),
            )
        if found.size and (int(found.min()) < 0 or int(found.max()) >= len(keys)):
            wrong = int(found.min()) if int(found.min()) < 0 else int(found.max())
            raise StateTypeError(
                f"{self!r}: {wrong} is no handle: this batch has the handles 0 to {len(keys) - 1}",
                state=self.name,
                expected=(0, len(keys) - 1),
                found=wrong,
            )
        return np.ascontiguousarray(found, np.int64)


class StateColumn:
    """One column of a state."""

    __slots__ = ("_field", "_position", "_state")

    def __init__(self, state: ColumnState, field: ColumnField, position: int) -> None:
        self._state = state
        self._field = field
        self._position = position

    def get_many(self, handles: npt.ArrayLike) -> Any:
        """Return the values of the handles' keys: a NumPy array, a masked one if the field may be null."""
        places = self._state.checked(handles)
        column = self._state.loaded.columns[self._position]
        values = column.values[places]
        return values if column.nulls is None else np.ma.MaskedArray(values, mask=column.nulls[places])

    def put_many(self, handles: npt.ArrayLike, values: Any) -> None:
        """Set the values of the handles' keys; other fields of a record that is new have their defaults."""
        places = self._state.checked(handles)
        self.set(places, self.given(values, len(places)))

    def add_at(self, handles: npt.ArrayLike, values: Any) -> None:
        """Add to the values of the handles' keys, one after the other; where there is null, the value takes its place.

        Raises:
            StateTypeError: a sum of ints is more than 64 bits hold; nothing was added.
        """
        field, state = self._field, self._state
        if field.dtype not in (np.int64, np.float64):
            kind = "str" if field.dtype is object else "bool"
            raise StateTypeError(
                f"{self!r} is a column of {kind}, to which nothing can be added: use put_many",
                state=state.name,
                field=field.name or None,
                expected="int or float",
                found=kind,
            )
        places = state.checked(handles)
        given = self.given(values, len(places))
        if given.nulls is not None and given.nulls.any():
            raise StateTypeError(
                f"{self!r}: null at position {int(given.nulls.argmax())} cannot be added: leave such rows out, or "
                f"fill_null(0)",
                state=state.name,
                field=field.name or None,
                found=None,
            )
        loaded = state.loaded
        column = loaded.columns[self._position]
        sums = column.values.copy()  # until all of it is right
        nulls = np.zeros(len(sums), np.bool_) if column.nulls is None else column.nulls.copy()
        add: Any = add_ints if field.dtype is np.int64 else add_floats
        failed = add(sums, nulls, places, given.values, np.zeros(len(places), np.bool_))
        if failed >= 0:
            handle = int(places[failed])
            total, key = int(sums[handle]) + int(given.values[failed]), state.keys.key(handle)
            raise StateTypeError(
                f"{self!r}, key {key!r}: the sum {total} is more than 64 bits hold: use a column of float",
                state=state.name,
                field=field.name or None,
                key=key,
                found=total,
            )
        loaded.columns[self._position] = Column(sums, None if column.nulls is None else nulls)
        loaded.present[places] = loaded.changed[places] = True

    def given(self, values: Any, count: int) -> Column:
        """Values that a function gives for `count` handles, as the column has them."""
        state = self._state
        try:
            return given_values(values, count, self._field, state.layout)
        except StateTypeError as error:
            raise error.reworded(f"{self!r}: {error}").located(state=state.name) from None

    def set(self, places: Array, given: Column) -> None:
        """Set the values at the places."""
        loaded = self._state.loaded
        column = loaded.columns[self._position]
        column.values[places] = given.values
        if column.nulls is not None:
            column.nulls[places] = given.nulls
        loaded.present[places] = loaded.changed[places] = True

    def __repr__(self) -> str:
        return f"<column state {self._state.name!r}{f', field {self._field.name!r}' if self._field.name else ''}>"
