"""`FileSlice`: an open state file, and the key groups that a slot takes from it.

After rescaling, several slots take disjoint ranges of key groups from one file, each with its own later deltas and its
own decisions about the file's states.

Thread safety: as the reader.
"""

from __future__ import annotations

import dataclasses

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, FileDecisions
from emberstate.errors import CorruptionError
from emberstate.keygroups import KeyGroupRange


@dataclasses.dataclass(frozen=True, slots=True)
class FileSlice:
    """Some key groups of a file, and the decisions about its states."""

    reader: StateFileReader
    key_groups: KeyGroupRange
    decisions: FileDecisions = NO_DECISIONS

    def __post_init__(self) -> None:
        covered = self.reader.meta.key_groups
        if self.key_groups.intersection(covered) != self.key_groups:
            raise CorruptionError(
                f"{self.reader.name} has key groups {covered}, but {self.key_groups} are taken from it: it is another "
                f"file",
                path=self.reader.name,
                expected=(self.key_groups.start, self.key_groups.end),
                found=(covered.start, covered.end),
            )

    @staticmethod
    def whole(reader: StateFileReader, decisions: FileDecisions = NO_DECISIONS) -> FileSlice:
        """Return a slice of all key groups."""
        return FileSlice(reader, reader.meta.key_groups, decisions)


def as_slice(part: FileSlice | StateFileReader) -> FileSlice:
    """Return the slice; a reader stands for its whole file."""
    return part if isinstance(part, FileSlice) else FileSlice.whole(part)
