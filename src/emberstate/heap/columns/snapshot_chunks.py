"""Entries of a column table as columns: as of a snapshot, or those that changed since.

A reader holds the registry's lock for one part of the rows at a time. Between two parts rows may be added, changed and
freed: a row that is alive in a live snapshot keeps its number, and images keep what it had.

Thread safety: any thread; `changed_chunk` the owner's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

import numpy as np

from emberstate.heap.columns.column_rows import ColumnRows
from emberstate.heap.columns.layout import Array, Column
from emberstate.heap.map.snapshots import SnapshotPoint

#: Rows read under one hold of the lock.
CHUNK_ROWS: Final = 65_536
#: Rows looked through under one hold for those of a key group.
_LOOKED_THROUGH: Final = 1_048_576


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnChunk:
    """Some entries as columns; keys are a large binary column, namespaces have the table's numbers."""

    key_data: Array
    key_offsets: Array
    key_groups: Array
    namespaces: Array
    #: Whether there is an entry: in a list of changes, False is one that was removed.
    alive: Array
    stamps: Array
    columns: list[Column]


def chunks(store: ColumnRows, point: SnapshotPoint, key_group: int | None = None) -> Iterator[ColumnChunk]:
    """Iterate over the entries at `point`, of all key groups or of one."""
    with store.registry.lock:
        last = len(store.alive)
    for first in range(0, last, _LOOKED_THROUGH):
        with store.registry.lock:
            groups = store.groups[first : min(last, first + _LOOKED_THROUGH)]
            rows = first + np.flatnonzero(groups >= 0 if key_group is None else groups == key_group)
        for start in range(0, len(rows), CHUNK_ROWS):
            # A row that another key has got meanwhile was not alive.
            chunk = _alive_chunk(store, rows[start : start + CHUNK_ROWS], point)
            if chunk is not None:
                yield chunk


def _alive_chunk(store: ColumnRows, rows: Array, point: SnapshotPoint) -> ColumnChunk | None:
    with store.registry.lock:
        arrays = store.read(rows, point)
        alive = np.flatnonzero(arrays[0])
        return _chunk(store, rows[alive], [array[alive] for array in arrays]) if len(alive) else None


def changed_chunk(store: ColumnRows, point: SnapshotPoint) -> ColumnChunk:
    """Return the entries that differ from `point`, by key group, as they are now."""
    with store.registry.lock:
        point.check_live()
        rows, then, now = store.touched(point.version)
        alive = then[0] & now[0]
        differ = (then[0] != now[0]) | (alive & (then[1] != now[1]))
        for old, new in zip(store.columns_in(then), store.columns_in(now), strict=True):
            differ |= alive & _different(old, new)
        kept = np.flatnonzero(differ)
        # Of 16 bits, NumPy's stable sort is a radix sort; there are fewer key groups than that.
        kept = kept[np.argsort(store.groups[rows[kept]].astype(np.uint16), kind="stable")]
        return _chunk(store, rows[kept], [array[kept] for array in now])


def _different(old: Column, new: Column) -> Array:
    """Where two columns differ; NaN is the same as NaN, what lies behind a null does not count."""
    one, other = old.values, new.values
    if one.dtype == object:
        return np.array([a is not b and a != b for a, b in zip(one.tolist(), other.tolist(), strict=True)], np.bool_)
    if one.dtype == np.float64:  # as bits: the sign of a zero counts, NaN is equal to itself
        one, other = one.view(np.int64), other.view(np.int64)
    differ: Array = one != other
    if old.nulls is not None and new.nulls is not None:
        differ = (old.nulls != new.nulls) | (~old.nulls & differ)
    return differ


def _chunk(store: ColumnRows, rows: Array, arrays: list[Array]) -> ColumnChunk:
    data, offsets = store.index.keys(rows)
    namespaces = store.index.namespaces_of(rows)
    return ColumnChunk(data, offsets, store.groups[rows], namespaces, arrays[0], arrays[1], store.columns_in(arrays))
