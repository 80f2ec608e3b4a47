"""`RestorePart`: a reference to a state file, as a manifest has it.

After rescaling, one file is referred to for several disjoint ranges of key groups, each followed by deltas of
its own; and for each, what was decided about the file's states goes along.

Thread safety: as the reader.
"""

from __future__ import annotations

import dataclasses

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.decisions import NO_EVOLUTION, Evolution
from emberstate.errors import CorruptionError
from emberstate.keygroups import KeyGroupRange


@dataclasses.dataclass(frozen=True, slots=True)
class RestorePart:
    """Some key groups of a file, and what was decided about its states."""

    reader: StateFileReader
    key_groups: KeyGroupRange
    evolution: Evolution = NO_EVOLUTION

    def __post_init__(self) -> None:
        covered = self.reader.meta.key_groups
        if self.key_groups.intersection(covered) != self.key_groups:
            raise CorruptionError(
                f"{self.reader.name} has key groups {covered}, and {self.key_groups} are to be taken from it: it "
                f"is not the file that is meant"
            )

    @staticmethod
    def whole(reader: StateFileReader, evolution: Evolution = NO_EVOLUTION) -> RestorePart:
        """All of a file."""
        return RestorePart(reader, reader.meta.key_groups, evolution)


def as_part(part: RestorePart | StateFileReader) -> RestorePart:
    """The part; a reader stands for all of its file."""
    return part if isinstance(part, RestorePart) else RestorePart.whole(part)
