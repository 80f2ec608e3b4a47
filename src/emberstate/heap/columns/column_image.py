"""`ColumnImage`: what one snapshot keeps of one column table that has changed since.

Before the first change of a row after the newest snapshot, the table saves the row here: its number, and what each of
the table's arrays had at that number. So an image holds what was touched and nothing else, in a few arrays. A row that
did not exist is saved as one that is not alive.

A row as of a snapshot is what the oldest image from that snapshot on has, else what the table has.

Invariants: a row is in an image once, with what it had when the snapshot was taken; its number is not given to another
key while an image has it.

Thread safety: changed and read under the registry's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emberstate.heap.columns.layout import Array

_NO_ROWS = np.empty(0, np.int64)


class ColumnImage:
    """The rows that changed since a snapshot, as they were."""

    __slots__ = ("map", "older", "parts", "sides", "version")

    map: Any  # the table; the registry calls it so
    version: int
    older: ColumnImage | None
    parts: list[tuple[Array, list[Array]]]  # rows, and of each array of the table what it had there
    sides: tuple[Any, ...]  # none: the registry drops those of maps

    def __init__(self, table: Any, version: int, older: ColumnImage | None) -> None:
        self.map = table
        self.version = version
        self.older = older
        self.parts = []
        self.sides = ()

    def save(self, rows: Array, arrays: list[Array]) -> None:
        """Save rows, which are not here yet, with what each array has."""
        self.parts.append((rows, arrays))

    def rows(self) -> Array:
        """The rows, in no order."""
        return np.concatenate([rows for rows, _ in self.parts]) if self.parts else _NO_ROWS

    def sorted(self) -> tuple[Array, list[Array]]:
        """The rows ascending, with what each array had; what is saved becomes one sorted part."""
        if not self.parts:
            return _NO_ROWS, []
        if len(self.parts) > 1 or (np.diff(self.parts[0][0]) < 0).any():
            rows = self.rows()
            order = np.argsort(rows)
            columns = zip(*[arrays for _, arrays in self.parts], strict=True)
            self.parts = [(rows[order], [np.concatenate(parts)[order] for parts in columns])]
        return self.parts[0]

    def lay_over(self, rows: Array, arrays: list[Array]) -> None:
        """Overwrite what `arrays` have of `rows`, which ascend, by what is saved of them here."""
        mine, saved = self.sorted()
        if not len(mine) or not len(rows):
            return
        positions = np.searchsorted(mine, rows)
        positions[positions == len(mine)] = 0
        found = np.flatnonzero(mine[positions] == rows)
        positions = positions[found]
        for array, values in zip(arrays, saved, strict=True):
            array[found] = values[positions]

    def absorb(self, newer: ColumnImage) -> None:
        """Take over what `newer`, whose snapshot was released, keeps; rows already here are older and stay."""
        rows, arrays = newer.sorted()
        missing = np.isin(rows, self.rows(), invert=True)
        if missing.all():
            self.parts += newer.parts
        elif missing.any():
            self.save(rows[missing], [array[missing] for array in arrays])

    def clear(self) -> None:
        """Forget everything: the table has been put back to it."""
        self.parts = []


def oldest_first(newest: ColumnImage | None, version: int) -> list[ColumnImage]:
    """The images that a snapshot of `version` reads through, oldest first."""
    images = []
    while newest is not None and newest.version >= version:
        images.append(newest)
        newest = newest.older
    images.reverse()
    return images
