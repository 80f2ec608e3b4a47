"""Filling a backend from the rows of state files: the interface of a backend's loaders.

A row is one step of a change (`state.changes.Op`) with its parts as bytes (`row_columns`). Rows of an entry follow one
another, entries ascend by the bytes of key and namespace, user keys within an entry ascend too. An entry may continue
in the next batch of the same file.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from emberstate.state.row_columns import Decoder, RowColumns


@dataclasses.dataclass(frozen=True, slots=True)
class RowDecoders:
    """Decoders of the parts of a file's rows."""

    key: Decoder
    namespace: Decoder
    user_key: Decoder
    value: Decoder


@dataclasses.dataclass(frozen=True, slots=True)
class FileRules:
    """Rules for the rows of one state in a file.

    base: entries come whole and do not exist yet. exact: what is removed must exist. stamped: rows have stamps.
    keeps_stamps: the state does; `decided_stamp`, if not None, replaces the rows' own.
    """

    base: bool
    exact: bool
    stamped: bool
    keeps_stamps: bool
    decided_stamp: int | None


class RowLoader(Protocol):
    """Loads the rows of one state of one file, into a backend that was never snapshotted.

    Thread safety: the backend's owner thread.
    """

    #: The row of the batch that is being loaded: where an error was found.
    row: int

    def load(self, columns: RowColumns, start: int, stop: int) -> None:
        """Load a run: the rows [start, stop), all of one key group.

        Raises:
            BadRow: a row that no writer writes.
            CodecError: a part cannot be decoded.
        """
