"""`Notices`: warnings of one run of a query, each logged once: late rows, and an input that holds the watermark back.

`Progress` has the numbers of every batch; a notice says what to do about them.

Thread safety: the thread of the query's batches.
"""

from __future__ import annotations

import logging
from typing import Final

from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.spark.driver.stage_run import StageRun
from emberstate.spark.progress import Progress

_log = logging.getLogger("emberstate.spark")

#: Batches with rows that the watermark may stand still for.
_HELD_BACK_BATCHES: Final = 10


class Notices:
    """The warnings of one run."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._late: set[str] = set()  # stages whose late rows were logged
        self._held_back = 0  # batches in a row in which rows came and the watermark stood still
        self._watermark: object = self  # of the batch before; equal to none as yet

    def late_rows(self, stage: StageSpec, run: StageRun) -> None:
        """Warn of rows that came late to a stage after another, or that the first one dropped."""
        if stage.name in self._late:
            return
        if stage.follows:
            late = _count(run, "late_rows")
            if late:
                self._late.add(stage.name)
                _log.warning(
                    "Pipeline %r: %d rows came late to stage %r: the stage before stamped them older than event time "
                    "was when it emitted them, as with the start of a window that is over. Stamp them with the "
                    "window's end, or give event_time(column, out_of_orderness) of stage %r as much as they are older",
                    self._pipeline, late, stage.name, stage.name,
                )  # fmt: skip
            return
        dropped = 0 if stage.late_output is not None else _count(run, "late_rows_dropped")
        if dropped:
            self._late.add(stage.name)
            _log.warning(
                "Pipeline %r: stage %r dropped %d late rows, older than the watermark; Progress.late_rows_dropped "
                "counts them. Raise out_of_orderness of event_time(…), or take them by late_output=… or "
                "process_late_element",
                self._pipeline, stage.name, dropped,
            )  # fmt: skip

    def slow_input(self, progress: Progress) -> None:
        """Warn that one of two inputs holds the watermark back, once until it moves again."""
        still, self._watermark = self._watermark == progress.watermark, progress.watermark
        if progress.watermark_held_by is None or not still:
            self._held_back = 0
        elif progress.rows_in:
            self._held_back += 1
            if self._held_back == _HELD_BACK_BATCHES:
                _log.warning(
                    "Pipeline %r: input %r has held the watermark at %s for %d batches with rows: no timer fires, no "
                    "window closes. If the input may be silent for long, give it an idle_timeout",
                    self._pipeline, progress.watermark_held_by, progress.watermark, self._held_back,
                )  # fmt: skip


def _count(run: StageRun, name: str) -> int:
    return sum(one.counts.get(name, 0) for one in run.acknowledgements)
