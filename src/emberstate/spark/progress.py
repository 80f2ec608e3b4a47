"""`Progress`: what became of one batch: counts, state, times. One line in the log, a dict for machines.

Times of slots are means over the slots of a stage, summed over stages; `spark` is what is left of a stage's time:
scheduling, reading, shuffling, sorting.

Thread safety: immutable values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One batch."""

    pipeline: str
    batch: int
    checkpoint: int
    #: The batch was committed before, and was delivered again.
    redelivered: bool
    rows_in: int
    rows_out: Mapping[str, int]
    late_rows: int
    late_rows_dropped: int
    null_keys: int
    timers_fired: int
    #: Slots by how they came to their state: hot, rolled back, restored.
    slots: Mapping[str, int]
    state_entries: int
    state_bytes: int
    delta_bytes: int
    #: UTC; None without event time, or before the first row.
    watermark: datetime | None
    #: Which of two inputs is behind the other, so that the next watermark comes from it: "first", or its name.
    watermark_held_by: str | None
    #: What functions counted.
    counters: Mapping[str, int]
    #: By part: total, spark, transport, user (with its use of state), snapshot (taking one, or restoring), state
    #: (clean-up), delta, output, commit, sink; and background: how long the last base or merge took.
    seconds: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name, value in plain.items():
            if isinstance(value, Mapping):
                plain[name] = dict(value)
        plain["watermark"] = None if self.watermark is None else self.watermark.isoformat()
        return plain

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
