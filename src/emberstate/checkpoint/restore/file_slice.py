"""`FileSlice`: a reference to a state file, as a manifest has it.

After rescaling, one file is referred to for several disjoint ranges of key groups, each followed by deltas of
its own; and for each, what was decided about the file's states goes along.

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
    """Some key groups of a file, and what was decided about its states."""

    reader: StateFileReader
    key_groups: KeyGroupRange
    decisions: FileDecisions = NO_DECISIONS

    def __post_init__(self) -> None:
        covered = self.reader.meta.key_groups
        if self.key_groups.intersection(covered) != self.key_groups:
            raise CorruptionError(
                f"{self.reader.name} has key groups {covered}, and {self.key_groups} are to be taken from it: it "
                f"is not the file that is meant"
            )

    @staticmethod
    def whole(reader: StateFileReader, decisions: FileDecisions = NO_DECISIONS) -> FileSlice:
        """All of a file."""
        return FileSlice(reader, reader.meta.key_groups, decisions)


def as_slice(part: FileSlice | StateFileReader) -> FileSlice:
    """The part; a reader stands for all of its file."""
    return part if isinstance(part, FileSlice) else FileSlice.whole(part)
