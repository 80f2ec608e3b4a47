"""`Location`: one of the locations that the page was given. A request names it by its position, never by a path.

Thread safety: any thread; every request opens a reader of its own.
"""

from __future__ import annotations

import re
from typing import Final

from emberstate.checkpoint.history.reader import HistoryReader
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, savepoint_names
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import StateDeclarationError
from emberstate.storage.interface import Storage
from emberstate.ui.measurements import Measurements

_SAVEPOINT: Final = "savepoint:"
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


class Location:
    """A location, and what was measured of it."""

    def __init__(self, number: int, storage: Storage) -> None:
        #: Its position.
        self.number = number
        self.storage = storage
        #: As people know it.
        self.name = storage.describe()
        self.measurements = Measurements(storage)
        #: Keeps what it has read.
        self.history = HistoryReader(storage)

    def choices(self) -> list[str]:
        """Return what `open` takes: checkpoints, newest first, then savepoints."""
        numbers = [str(number) for number in reversed(checkpoint_numbers(self.storage))]
        return [*numbers, *(f"{_SAVEPOINT}{name}" for name in savepoint_names(self.storage))]

    def open(self, which: str = "") -> CheckpointReader:
        """Open the newest checkpoint, or the newest savepoint by name if there is none; or one that `choices` names."""
        if not which:
            names = [] if checkpoint_numbers(self.storage) else savepoint_names(self.storage)
            return CheckpointReader.open(self.storage, savepoint=names[-1] if names else None)
        if which.startswith(_SAVEPOINT):
            return CheckpointReader.open(self.storage, savepoint=which.removeprefix(_SAVEPOINT))
        if not _NUMBER.fullmatch(which):
            what = f"{which!r:.100} is neither the number of a checkpoint nor savepoint:NAME"
            raise StateDeclarationError(what, option="at", found=which[:100])
        return CheckpointReader.open(self.storage, int(which))
