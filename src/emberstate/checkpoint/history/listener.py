"""`RecordListener`: a listener of a pipeline that gets the records of its history.

Thread safety: `record` is called by one thread at a time for one pipeline; a listener of several pipelines is called by
several.
"""

from __future__ import annotations

import abc
from typing import Any

from emberstate.checkpoint.history.model import HistoryRecord


class RecordListener(abc.ABC):
    """Given to `Pipeline.listener`, it gets a record of every batch, start, savepoint and failure."""

    @abc.abstractmethod
    def record(self, record: HistoryRecord) -> None:
        """Take a record; what it raises is logged, and the batch goes on."""

    def __call__(self, progress: Any) -> None:
        """Do nothing: the record has all that the progress has."""
        return
