"""A brute-force model of windows: plain lists, no state, no timers, no slices.

It has every window of every key as an object with the rows themselves, and finds out what happens next by looking
at all of them. `FARTHEST` stands for the end of time.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

FARTHEST = 2**63 - 1

Firing = tuple[str, tuple[int, int], tuple[int, ...]]  # key, (start, end), the values of the rows


class Shape(NamedTuple):
    """Which windows: kind is tumbling, sliding, session, dynamic or global; times in microseconds."""

    kind: str
    event_time: bool
    size: int = 1
    slide: int = 1
    offset: int = 0


class Rule(NamedTuple):
    """When they fire: kind is end, event end, never, count, continuous event or continuous processing."""

    kind: str
    number: int = 0  # rows, or an interval
    purging: bool = False


def dynamic_gap(value: int) -> int:
    """The gap that a row asks for, with windows of kind dynamic."""
    return value % 5 + 1


@dataclasses.dataclass(eq=False)
class Span:
    """A window of one key."""

    key: str
    start: int
    end: int
    ended: bool
    rows: list[int] = dataclasses.field(default_factory=list)
    count: int = 0
    next_fire: int | None = None


class Model:
    """What windows do, to be compared with."""

    def __init__(self, shape: Shape, rule: Rule, lateness: int) -> None:
        self.shape = shape
        self.rule = rule
        self.lateness = lateness if shape.event_time else 0
        self.watermark = -(2**63)
        self.now = 0
        self.spans: list[Span] = []
        self.fired: list[Firing] = []
        self.late: list[int] = []

    # -- what comes in --------------------------------------------------------------------------------------

    def row(self, key: str, timestamp: int, value: int) -> None:
        """A row comes."""
        spans = self._spans_of(key, timestamp if self.shape.event_time else self.now, value)
        in_time = [s for s in spans if not (self.shape.event_time and s.end + self.lateness <= self.watermark)]
        if spans and not in_time:
            self.late.append(value)
        for span in in_time:
            if self.shape.kind in ("session", "dynamic"):
                span = self._merged(span)
            elif span not in self.spans:
                self.spans.append(span)
            span.rows.append(value)
            if self._fires_for_row(span, timestamp):
                self._fire(span)
        self.to_watermark(self.watermark)

    def to_watermark(self, watermark: int) -> None:
        """The watermark advances."""
        while (moment := self._next_event_moment()) <= watermark:
            self.watermark = max(self.watermark, moment)
            for span in list(self.spans):
                self._at_event_time(span, moment)
        self.watermark = max(self.watermark, watermark)

    def to_processing_time(self, now: int) -> None:
        """Processing time advances: timers fire late, when all of it has passed."""
        self.now = now
        for span in list(self.spans):
            if self.rule.kind == "continuous processing" and span.next_fire is not None and span.next_fire <= now:
                self._fire(span)
                span.next_fire = self._next_processing_fire(span)
            elif self.rule.kind == "end" and self._ends_by_processing_time() and span.end <= now:
                self._fire(span)
            if self._ends_by_processing_time() and span.end <= now:
                self.spans.remove(span)

    # -- windows --------------------------------------------------------------------------------------------

    def _spans_of(self, key: str, time: int, value: int) -> list[Span]:
        """The windows that a row belongs to: those that are there, or new ones."""
        kind, _, size, slide, offset = self.shape
        if kind == "session":
            bounds = [(time, time + size)]
        elif kind == "dynamic":
            bounds = [(time, time + dynamic_gap(value))]
        elif kind == "global":
            bounds = [(-1, FARTHEST)]
        else:
            step = size if kind == "tumbling" else slide
            starts = range(time - size - step, time + step + 1)
            bounds = [(s, s + size) for s in starts if (s - offset) % step == 0 and s <= time < s + size]
        if kind in ("session", "dynamic"):
            return [self._preview(key, *bounds[0])]
        known = {(span.start, span.end): span for span in self.spans if span.key == key}
        return [known.get(b) or Span(key, *b, ended=self._has_ended(b[1])) for b in bounds]

    def _touched(self, key: str, start: int, end: int) -> list[Span]:
        return sorted(
            (s for s in self.spans if s.key == key and s.start <= end and start <= s.end), key=lambda s: s.start
        )

    def _preview(self, key: str, start: int, end: int) -> Span:
        """The session that a row would be in."""
        for span in self._touched(key, start, end):
            start, end = min(start, span.start), max(end, span.end)
        return Span(key, start, end, ended=self._has_ended(end))

    def _merged(self, whole: Span) -> Span:
        """The session, in place of those it is made of."""
        for part in self._touched(whole.key, whole.start, whole.end):
            if (part.start, part.end) == (whole.start, whole.end):
                return part
            self.spans.remove(part)
            whole.rows += part.rows
            whole.count += part.count
            if part.next_fire is not None:
                whole.next_fire = part.next_fire if whole.next_fire is None else min(whole.next_fire, part.next_fire)
        self.spans.append(whole)
        return whole

    def _ends_by_processing_time(self) -> bool:
        return not self.shape.event_time and self.shape.kind != "global"

    def _has_ended(self, end: int) -> bool:
        return not self._ends_by_processing_time() and end <= self.watermark

    # -- firing ---------------------------------------------------------------------------------------------

    def _fires_for_row(self, span: Span, timestamp: int) -> bool:
        kind, number, _ = self.rule
        if kind == "count":
            span.count += 1
            if span.count >= number:
                span.count = 0
                return True
        if kind == "continuous processing" and span.next_fire is None:
            span.next_fire = self._next_processing_fire(span)
        if kind in ("event end", "continuous event") or (kind == "end" and self.shape.event_time):
            if span.end <= self.watermark:
                return True
            if kind == "continuous event" and span.next_fire is None:
                span.next_fire = min(timestamp // number * number + number, span.end)
        return False

    def _next_event_moment(self) -> int:
        moments = [FARTHEST + 1]
        for span in self.spans:
            if self._ends_by_processing_time():
                continue
            if not span.ended:
                moments.append(span.end)
            if self.rule.kind == "continuous event" and span.next_fire is not None:
                moments.append(span.next_fire)
            if self.shape.event_time:
                moments.append(span.end + self.lateness)
        return min(moments)

    def _at_event_time(self, span: Span, moment: int) -> None:
        kind, number, _ = self.rule
        at_end = not span.ended and span.end == moment
        at_next = kind == "continuous event" and span.next_fire == moment
        if at_end:
            span.ended = True
        if at_next or (at_end and kind == "continuous event"):
            span.next_fire = None
            if not span.ended and span.end < FARTHEST:
                span.next_fire = min(moment // number * number + number, span.end)
        if at_next or (at_end and kind in ("event end", "continuous event", "end")):
            self._fire(span)
        if self.shape.event_time and span.end + self.lateness == moment:
            self.spans.remove(span)

    def _next_processing_fire(self, span: Span) -> int:
        following = self.now // self.rule.number * self.rule.number + self.rule.number
        return min(following, span.end) if self.now < span.end else following

    def _fire(self, span: Span) -> None:
        if span.rows:
            self.fired.append((span.key, (span.start, span.end), tuple(sorted(span.rows))))
        if self.rule.purging:
            span.rows = []
