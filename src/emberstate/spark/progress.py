"""`Progress`: the result of one batch: counts, state, times. A line of the log as text, a dict for machines.

Thread safety: immutable values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from emberstate._html import facts_html
from emberstate.units import size_text


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The result of one batch. Listeners get it, and `Pipeline.last_progress` has the last one.

    Times of slots are means over the slots of a stage, summed over stages; `spark` is the rest of a stage's time:
    scheduling, reading, shuffling, sorting.

    `str(progress)` is the line in the log, `progress.as_dict()` plain data for JSON.
    """

    pipeline: str
    batch: int
    checkpoint: int
    #: The batch was committed before, and only delivered again.
    redelivered: bool
    rows_in: int
    #: By output.
    rows_out: Mapping[str, int]
    #: Rows behind the watermark.
    late_rows: int
    #: Those of them that reached no method of the function.
    late_rows_dropped: int
    #: Rows dropped by `key_by(…, null_keys="drop")`.
    null_keys: int
    timers_fired: int
    #: Slots by how they got their state: hot, rolled back, restored.
    slots: Mapping[str, int]
    state_entries: int
    #: The stored size of the state: of the files that the checkpoint names.
    state_bytes: int
    delta_bytes: int
    #: In UTC; None without event time, or before the first row.
    watermark: datetime | None
    #: The one of two inputs that is behind, and so holds the watermark: "first", or its name.
    watermark_held_by: str | None
    #: The counters of functions, by name.
    counters: Mapping[str, int]
    #: Times by part: total, spark, transport, user (with access to state), snapshot (taking one, or restoring), state
    #: (clean-up), delta, output, commit, sink; and background: the time of the last base or merge.
    seconds: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in plain.items():
            if isinstance(value, Mapping):
                plain[name] = dict(value)
        plain["watermark"] = None if self.watermark is None else self.watermark.isoformat()
        return plain

    def _repr_html_(self) -> str:
        """The batch as a table, in a notebook."""
        late = f", {self.late_rows} late" if self.late_rows else ""
        nulls = f", {self.null_keys} null keys" if self.null_keys else ""
        held = f" (held by {self.watermark_held_by})" if self.watermark_held_by else ""
        return facts_html(
            f"{self.pipeline}: batch {self.batch}{' delivered again' if self.redelivered else ''}",
            [
                ("checkpoint", self.checkpoint),
                ("rows in", f"{self.rows_in}{late}{nulls}"),
                ("rows out", ", ".join(f"{rows} {name}" for name, rows in self.rows_out.items()) or "0"),
                ("timers fired", self.timers_fired),
                ("slots", ", ".join(f"{count} {how}" for how, count in self.slots.items() if count) or "none ran"),
                ("state", f"{self.state_entries} entries, stored {size_text(self.state_bytes)}"),
                ("delta", size_text(self.delta_bytes)),
                ("watermark", None if self.watermark is None else f"{self.watermark}{held}"),
                *((f"counter {name}", value) for name, value in self.counters.items()),
                ("seconds", ", ".join(f"{part} {value:.3f}" for part, value in self.seconds.items())),
            ],
        )

    def __str__(self) -> str:
        out = ", ".join(f"{rows} {name}" for name, rows in self.rows_out.items()) or "0"
        slots = ", ".join(f"{count} {how}" for how, count in self.slots.items() if count) or "none ran"
        seconds = " ".join(f"{part} {value:.3f}" for part, value in self.seconds.items() if part != "total")
        again = " delivered again" if self.redelivered else ""
        late = f", late {self.late_rows}" if self.late_rows else ""
        held = f" (held by {self.watermark_held_by})" if self.watermark_held_by else ""
        nulls = f", null keys {self.null_keys}" if self.null_keys else ""
        return (
            f"{self.pipeline}: batch {self.batch}{again} in {self.seconds['total']:.3f} s: rows in {self.rows_in}{late}"
            f"{nulls}, out {out}; slots {slots}; state {self.state_entries} entries, {self.state_bytes} bytes, delta "
            f"{self.delta_bytes} bytes; watermark {self.watermark}{held}; seconds: {seconds}"
        )
