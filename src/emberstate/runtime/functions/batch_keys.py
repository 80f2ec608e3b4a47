"""`BatchKeys`: the keys of the rows that `process_arrow` gets, as dense handles.

The distinct keys of a batch have the handles 0, 1, 2 and so on, in the order in which they first come. A handle is
valid for the batch that it came with and for no other; `Handles` remember which, and so do slices and copies of them.

Thread safety: the operator's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from emberstate.errors import RowTypeError
from emberstate.heap.columns.key_index import KeyIndex
from emberstate.keygroups import KeySchema
from emberstate.state.cells.keys import encode_keys
from emberstate.state.key_bytes import key_bytes

Array = npt.NDArray[Any]

_FLOATS: Final = (pa.float32(), pa.float64())


class Handles(np.ndarray):
    """Handles of keys: an array of ints that knows its batch."""

    keys: BatchKeys | None

    def __array_finalize__(self, source: Any) -> None:
        """Keep the batch in slices and copies."""
        self.keys = getattr(source, "keys", None)


class BatchKeys:
    """The keys of one batch.

    >>> batch = pa.record_batch({"card": ["b", "a", "b"], "amount": [1, 2, 3]})
    >>> keys = BatchKeys(batch, ["card"], np.zeros(3, np.int32), KeySchema.from_python(str))
    >>> len(keys), keys.handles.tolist(), keys.distinct.tolist(), keys.column("card").to_pylist()
    (2, [0, 1, 0], [0, 1], ['b', 'a'])
    """

    __slots__ = ("_columns", "_schema", "data", "distinct", "first", "groups", "handles", "offsets")

    #: The handle of each row's key.
    handles: npt.NDArray[np.int64]
    #: All handles, each once, ascending.
    distinct: npt.NDArray[np.int64]
    #: For each handle, the first row that has its key: `batch.take(keys.first)`.
    first: npt.NDArray[np.int64]

    def __init__(
        self, batch: pa.RecordBatch, key_columns: Sequence[str], key_groups: Array, key_schema: KeySchema
    ) -> None:
        arrays = [batch.column(name) for name in key_columns]
        data, offsets = encode_keys(arrays, key_schema)
        index = KeyIndex()
        rows = index.rows_of(data, np.asarray(offsets), np.zeros(batch.num_rows, np.int32))
        count = index.entries
        first = np.empty(count, np.int64)
        first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1)  # the first of a key's rows is written last
        self.first = first
        self.handles = self._own(rows)
        self.distinct = self._own(np.arange(count, dtype=np.int64))
        # For states: the canonical bytes of each handle's key, and its key group.
        self.data, self.offsets = index.keys(np.arange(count, dtype=np.int64))
        self.groups = np.ascontiguousarray(key_groups[first])
        self._columns = dict(zip(key_columns, arrays, strict=True))
        self._schema = key_schema

    def _own(self, handles: Array) -> npt.NDArray[np.int64]:
        owned = handles.view(Handles)
        owned.keys = self
        return owned

    def __len__(self) -> int:
        """The number of different keys."""
        return len(self.first)

    def column(self, name: str) -> pa.Array:
        """A key column, with one value for each handle."""
        column = self._columns.get(name)
        if column is None:
            raise RowTypeError(
                f"{name!r} is no key column, the key is {list(self._columns)}: take other columns from the batch, "
                f"batch.column({name!r}).take(keys.first) for the first row of each key",
                column=name,
                expected=tuple(self._columns),
            )
        found = column.take(pa.array(self.first))
        return pc.add(found, pa.scalar(0.0, found.type)) if found.type in _FLOATS else found  # no -0.0, as in state

    def key(self, handle: int) -> Any:
        """The key of a handle: a value, or a tuple if there are several key columns."""
        start, end = self.offsets[handle], self.offsets[handle + 1]
        return key_bytes(self._schema).decode(self.data[start:end].tobytes())
