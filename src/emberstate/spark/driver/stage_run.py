"""`StageRun`: the slots' answers of one stage in one batch, and what they add up to for `Progress` and the commit.

Thread safety: immutable values, pure functions.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.spark.slot.messages import SlotAnswer

#: The parts of a batch's time, and which of a slot's parts they consist of.
_SLOT_PARTS: Final = {
    "transport": ("transport",),
    "user": ("user",),
    "snapshot": ("start",),
    "state": ("state", "gc"),
    "delta": ("prepare",),
    "output": ("output",),
}
_COUNTER: Final = "counter/"


@dataclasses.dataclass(frozen=True, slots=True)
class StageRun:
    """What a stage answered, and how long it took."""

    seconds: float
    answers: Sequence[SlotAnswer]
    acknowledgements: Sequence[Acknowledgement]  # of the keyed states, by slot


def starts(runs: Iterable[StageRun]) -> dict[str, int]:
    """How slots came to their state."""
    how = Counter(answer.start for run in runs for answer in run.answers)
    hot = how.pop("promoted", 0) + how.pop("hot", 0)
    return {"hot": hot, "rolled back": how["rolled back"], "restored": how["restored"]}


def slot_seconds(runs: Sequence[StageRun]) -> dict[str, float]:
    """The parts of the time that stages took."""
    parts = dict.fromkeys(("spark", *_SLOT_PARTS), 0.0)
    for run in runs:
        count = max(1, len(run.answers))
        for part, names in _SLOT_PARTS.items():
            parts[part] += sum(answer.micros.get(name, 0) for answer in run.answers for name in names) / count / 1e6
        total = sum(answer.micros.get("total", 0) for answer in run.answers) / count / 1e6
        parts["spark"] += max(0.0, run.seconds - total)
    return parts


def counts(runs: Sequence[StageRun]) -> Counter[str]:
    """What was counted, over all stages but for rows in, which are those of the first."""
    total: Counter[str] = Counter()
    for number, run in enumerate(runs):
        for acknowledgement in run.acknowledgements:
            total.update({k: v for k, v in acknowledgement.counts.items() if number == 0 or k != "rows"})
    return total


def user_counters(total: Mapping[str, int]) -> dict[str, int]:
    """Those of functions."""
    return {name.removeprefix(_COUNTER): value for name, value in total.items() if name.startswith(_COUNTER)}


def commit_micros(runs: Sequence[StageRun]) -> dict[str, int]:
    """What a checkpoint remembers: how long preparing took, and the rewrites that came along; of the slowest slots."""
    prepared = [answer.micros.get("prepare", 0) for run in runs for answer in run.answers]
    rewritten = [
        answer.statistics.get("rewrites/last_micros", 0)
        for run in runs
        for answer, acknowledgement in zip(run.answers, run.acknowledgements, strict=True)
        if acknowledgement.rewrite is not None
    ]
    found = {"sync": max(prepared, default=0)}
    return {**found, "async": max(rewritten)} if rewritten else found
