"""Visits to a web site: pages of one visitor, with no more than half an hour between them, are one visit.

A session window grows with every page and merges with its neighbour when a page falls between them. Pages may come up
to a minute out of order; those that come later than that, up to ten minutes after the visit has ended, still correct
it. Run it to see visits being closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import emberstate as es
from emberstate.testing import Harness

PAGES = "visitor string, page string, ts timestamp"
VISITS = "visitor string, started timestamp, minutes double, pages bigint, entry string"


class Visit(NamedTuple):
    """What is kept of a visit: not its pages."""

    pages: int
    entry: str | None
    first: datetime | None
    last: datetime | None


class Visits(es.AggregateFunction[Any, Visit, Visit]):
    """Counts pages, and knows where and when the visit began."""

    def create_accumulator(self) -> Visit:
        return Visit(0, None, None, None)

    def add(self, value: Any, accumulator: Visit) -> Visit:
        return self.merge(accumulator, Visit(1, value.page, value.ts, value.ts))

    def get_result(self, accumulator: Visit) -> Visit:
        return accumulator

    def merge(self, one: Visit, other: Visit) -> Visit:
        if one.first is None or one.last is None:
            return other
        if other.first is None or other.last is None:
            return one
        entry = one.entry if one.first <= other.first else other.entry
        return Visit(one.pages + other.pages, entry, min(one.first, other.first), max(one.last, other.last))


class VisitRow(es.ProcessWindowFunction):
    """Makes a row of a visit that has ended."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        (visit,) = elements
        yield key, visit.first, (visit.last - visit.first) / timedelta(minutes=1), visit.pages, visit.entry


def harness(**options: Any) -> Harness:
    """Session windows in a harness, as a pipeline would declare them."""
    sessions = es.window(
        es.EventTimeSessionWindows.with_gap("30 minutes"), allowed_lateness="10 minutes", late_output="too late"
    )
    return Harness(
        sessions.aggregate(Visits(), function=VisitRow()),
        schema=PAGES,
        key="visitor",
        event_time="ts",
        out_of_orderness="1 minute",
        output=VISITS,
        side_outputs={"too late": PAGES},
        name="visits",
        **options,
    )


def main() -> None:
    """Run a morning and print the visits."""
    start = datetime(2026, 5, 4, 9, tzinfo=UTC)

    def page(visitor: str, minutes: float, name: str) -> tuple[str, str, datetime]:
        return visitor, name, start + timedelta(minutes=minutes)

    morning = [
        [page("ann", 0, "/home"), page("bob", 2, "/jobs"), page("ann", 25, "/shop")],
        [page("ann", 50, "/basket"), page("bob", 40, "/home")],
        [page("cid", 120, "/home")],
        [page("ann", 75, "/paid")],  # too late for ann's visit, which ended at 10:20
    ]
    with harness(parallelism=2) as visits:
        for pages in morning:
            visits.process_batch(pages)
        visits.close_input()
        for visit in visits.output:
            print(
                f"{visit.visitor} at {visit.started:%H:%M}: {visit.pages} pages in {visit.minutes:.0f} minutes, "
                f"from {visit.entry}"
            )
        print(f"{len(visits.side_output('too late'))} page came too late")


if __name__ == "__main__":
    main()
