"""`PaneAssigner`: the windows of a partial row where its time alone does not say them.

Sessions are in the row, as its pane. An assigner that looks at rows, of a user's own or with a gap by row, gets the
input row.

Immutable; any thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from emberstate.runtime.aggregates.spec import PANE_END, PANE_START, WHOLE, AggregateSpec
from emberstate.runtime.windows.assigners import WindowAssigner
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.trigger import Trigger


@dataclasses.dataclass(frozen=True)
class PaneAssigner(WindowAssigner):
    """Reads windows from partial rows, or asks the assigner for the windows of the input row."""

    assigner: WindowAssigner
    #: The places of the pane's start and end, for sessions; otherwise that of the input row.
    pane: tuple[int, int] | None
    whole: int | None

    @classmethod
    def of(cls, spec: AggregateSpec) -> PaneAssigner:
        """The windows of a stage's partial rows."""
        assert spec.window is not None
        position = spec.partial.position
        pane = (position(PANE_START), position(PANE_END)) if spec.is_sessions else None
        return cls(spec.window.assigner, pane, position(WHOLE) if pane is None else None)

    @property
    def is_event_time(self) -> bool:  # type: ignore[override]
        """As the assigner's."""
        return self.assigner.is_event_time

    @property
    def window_type(self) -> type:  # type: ignore[override]
        """As the assigner's."""
        return self.assigner.window_type

    @property
    def is_merging(self) -> bool:  # type: ignore[override]
        """As the assigner's."""
        return self.assigner.is_merging

    def assign(self, row: Any, time: int) -> Sequence[Any]:
        """The windows of a partial row."""
        if self.pane is not None:
            return (TimeWindow(row[self.pane[0]], row[self.pane[1]]),)
        assert self.whole is not None
        return self.assigner.assign(row[self.whole], time)

    def default_trigger(self) -> Trigger:
        """As the assigner's."""
        return self.assigner.default_trigger()
