# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""`sorted_order`: in which order the rows of a state file stand.

By key group, state, key, namespace, step and user key, all as bytes or numbers; a row without a user key comes last.
Rows that are equal in all of them keep their order. Compiled, that is a counting sort by key group and state, and a
merge sort of the rows of each that mostly compares eight bytes of the key, those after what all keys begin with. It
holds no lock. Interpreted, Arrow sorts.

Thread safety: pure.
"""

from __future__ import annotations

from typing import Any, Final

try:
    import cython
except ImportError:
    from emberstate import _cython as cython
import pyarrow as pa
import pyarrow.compute as pc

from emberstate.errors import InvariantError

_NAMES: Final = ("key_group", "state", "key", "namespace", "step", "user_key")
_ORDER: Final = [(name, "ascending") for name in _NAMES]
_NOTHING: Final = memoryview(b"\0")  # a column without bytes still needs one to point to

if not cython.compiled:  # compiled, these are C functions of the .pxd file

    def point(order: RowOrder) -> int:
        """Do nothing: interpreted, there are no pointers."""
        return 0

    def fill_order(order: RowOrder, rows: bytearray, count: int) -> int:
        """Interpreted, nobody calls it."""
        raise NotImplementedError


def sorted_order(rows: pa.RecordBatch) -> pa.Array:
    """Return the numbers of the rows in their order.

    >>> cells = [pa.array([b"b", b"a"], pa.large_binary())] * 3
    >>> numbers = [pa.array([1, 1], kind) for kind in (pa.uint16(), pa.uint16(), pa.uint32())]
    >>> names = ["key", "namespace", "user_key", "key_group", "state", "step"]
    >>> sorted_order(pa.RecordBatch.from_arrays([*cells, *numbers], names)).to_pylist()
    [1, 0]
    """
    count: cython.Py_ssize_t = rows.num_rows
    if not cython.compiled:
        return pc.sort_indices(rows, sort_keys=_ORDER)
    order = RowOrder(rows)
    numbers = bytearray(8 * count)
    if count:
        fill_order(order, numbers, count)
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])


class RowOrder:
    """The columns that rows are ordered by; their buffers in the order of `Columns` in the .pxd file."""

    __slots__ = ("views",)

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.views: list[memoryview | None] = []
        for name in ("key", "namespace", "user_key"):
            column = rows.column(name)
            valid, offsets, data = column.buffers()
            self.views += [_bytes_of(valid) if column.null_count else None, _bytes_of(offsets), _bytes_of(data)]
        self.views += [_bytes_of(rows.column(name).buffers()[1]) for name in ("key_group", "state", "step")]
        if any(rows.column(name).offset for name in _NAMES):
            raise InvariantError("rows to be sorted are a slice of other rows")
        point(self)


def start_of(view: Any) -> Any:
    """Where a buffer begins."""
    return cython.cast(cython.p_uchar, cython.address(view[0]))


def _bytes_of(buffer: pa.Buffer | None) -> memoryview:
    return _NOTHING if buffer is None or buffer.size == 0 else memoryview(buffer).cast("B")
