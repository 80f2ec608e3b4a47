"""`RunResult`: what `Pipeline.run` returns, the progress of every batch, and their output as DataFrames.

The output is what the run stored in its scratch location. The location lives as long as the result, and once `output`
was asked for, as long as the process: DataFrames are evaluated later, and those made from them are not known here.

Thread safety: the caller's thread.
"""

from __future__ import annotations

import atexit
import functools
import logging
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.manifest.model import FileRef, Manifest
from emberstate.runtime.rows.stored_outputs import StoredOutput
from emberstate.spark.driver.outputs import output_frame
from emberstate.spark.driver.recorded_outputs import sent_to_sinks
from emberstate.spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("emberstate.spark")


class RunResult(list[Progress]):
    """The progress of every batch of a run, in order; `output` has the rows."""

    def __init__(
        self, progress: Iterable[Progress], spark: SparkSession, batches: Sequence[Manifest], scratch: StateBackend
    ) -> None:
        """Take over the scratch location: all but the outputs of these batches is deleted now, the rest later."""
        super().__init__(progress)
        self._spark = spark
        self._batches = batches
        self._scratch = scratch
        self._discarded = weakref.finalize(self, discard, scratch)
        storage = scratch.open_storage()
        places = [output.place for manifest in batches for output in manifest.outputs]
        kept = {place.path for place in places if isinstance(place, FileRef)}
        storage.delete_all([path for path in storage.list() if path not in kept])

    @functools.cached_property
    def output(self) -> Any:
        """The rows of all batches as a DataFrame; if there are side outputs, DataFrames by name.

        The main output is "main". A name that several stages have is written "stage.name". Batches are in order. The
        rows stay stored until the process ends.
        """
        found = sent_to_sinks(self._batches[-1].stages)
        frames = {}
        for (stage, name), row_type in found.items():
            outputs = [
                StoredOutput.of(output)
                for manifest in self._batches
                for output in manifest.outputs
                if (output.operator, output.name) == (stage, name)
            ]
            frames[stage, name] = output_frame(self._spark, outputs, row_type, self._scratch)
        if self._discarded.detach() is not None:
            atexit.register(discard, self._scratch)
        times = Counter(name for _, name in frames)
        by_name = {name if times[name] == 1 else f"{stage}.{name}": frame for (stage, name), frame in frames.items()}
        return next(iter(by_name.values())) if len(by_name) == 1 else by_name


def discard(scratch: StateBackend) -> None:
    """Delete the scratch location of a run."""
    try:
        scratch.discard()
    except OSError as error:
        _log.warning("Deleting the scratch files of a run failed: %s", error)
