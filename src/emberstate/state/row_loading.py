"""Filling a backend from the rows of state files: what a file's reader and a backend say to each other.

A row is one step of a change (`state.changes.Op`) with its parts as bytes. Rows of an entry follow one
another, entries ascend by the bytes of key and namespace, user keys within an entry ascend too. An entry may
go on in the next batch of the same file.

The heap loads columns by compiled code of its own (`heap.bulk_load`); this is for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

#: key, namespace, step, user key, value, stamp
StoredRow = tuple[bytes, bytes, int, bytes | None, bytes | None, int | None]


@dataclasses.dataclass(frozen=True, slots=True)
class RowDecoders:
    """How the parts of a file's rows are read."""

    key: Callable[[bytes], Any]
    namespace: Callable[[bytes], Any]
    user_key: Callable[[bytes], Any]
    value: Callable[[bytes], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class FileRules:
    """What the rows of one state in a file may be.

    base: entries come whole and are not there yet. exact: what is removed must be there. stamped: rows have
    stamps. keeps_stamps: the state does; `decided_stamp` takes the place of the rows' own, if not None.
    """

    base: bool
    exact: bool
    stamped: bool
    keeps_stamps: bool
    decided_stamp: int | None


class RowLoader(Protocol):
    """Loads the rows of one state of one file."""

    #: The row, of its batch, that is being loaded: where an error was found.
    row: int

    def load_rows(self, key_group: int, start: int, rows: Iterable[StoredRow]) -> None:
        """Load rows of one key group, the first of which is row `start` of its batch.

        Raises:
            CodecError: what makes no sense, or cannot be decoded.
        """


class LoadsRows(Protocol):
    """A backend that loads rows."""

    def row_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RowLoader:
        """What fills a state from the rows of a file."""

    def timer_row_loader(self, name: str, decoders: RowDecoders, rules: FileRules) -> RowLoader:
        """What fills a timer queue from the rows of a file."""
