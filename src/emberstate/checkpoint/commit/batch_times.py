"""The event times that a committed batch has reached, from the acknowledgements of its slots.

Thread safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.manifest.model import Batch, InputTime


def with_event_times(batch: Batch, before: Batch | None, acknowledgements: Sequence[Acknowledgement]) -> Batch:
    """Return the batch with the event times that it and the batches before it have reached."""
    times = [a.max_event_time for a in acknowledgements if a.max_event_time is not None]
    idle = None if times else batch.idle
    if before is not None and before.max_event_time is not None:
        times.append(before.max_event_time)
    inputs = _input_times(batch, before, [a.input_times for a in acknowledgements if a.input_times])
    return msgspec.structs.replace(batch, max_event_time=max(times, default=None), idle=idle, inputs=inputs)


def _input_times(
    batch: Batch, before: Batch | None, found: Sequence[tuple[int | None, ...]]
) -> tuple[InputTime, ...]:
    """Return the progress of each of two inputs after the batch; nothing if slots do not distinguish inputs."""
    if not found:
        return ()
    count = len(found[0])
    earlier = (InputTime(batch.processing_time),) * count if before is None else before.of_inputs(count)
    inputs = []
    for one, times in zip(earlier, zip(*found, strict=True), strict=True):
        came = [time for time in times if time is not None]
        if came:
            known = [] if one.max_event_time is None else [one.max_event_time]
            one = InputTime(batch.processing_time, max(came + known))
        inputs.append(one)
    return tuple(inputs)
