"""Deduplication, rankings and sessions, each against what it promises."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.heap.backend import HeapBackendStatistics
from examples import deduplicate, session_windows, top_n
from tests.effort import examples

START = datetime(2026, 5, 4, 9, tzinfo=UTC)


def test_duplicates_are_dropped_for_an_hour() -> None:
    """Catches: a duplicate that goes on, a message that is held back for longer, or state that is never removed."""
    with deduplicate.harness(parallelism=2) as once:
        assert once.process(("a", "1"), ("a", "2"), ("b", "3")) == [("a", "1"), ("b", "3")]
        once.crash()
        once.advance_processing_time("59 minutes 59 seconds")
        assert once.process(("a", "4")) == []
        once.advance_processing_time("1 second")
        assert once.process(("a", "5")) == [("a", "5")]
        assert (once.counters, once.keys("seen")) == ({"duplicates": 2}, ["a"])
        held = [operator.backend for operator in once.statistics().operators]
        entries = sum(backend.entries for backend in held if isinstance(backend, HeapBackendStatistics))
        assert entries == 1  # that of "b" is gone, not only hidden


@settings(max_examples=examples(30))
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abcdef"), st.integers(-9, 9).map(float)), max_size=25),
    st.integers(1, 3),
)
def test_the_ranking_is_that_of_all_sales(sales: list[tuple[str, str, float]], n: int) -> None:
    """Catches: a ranking kept up step by step that differs from one computed from all sales."""
    shown: dict[tuple[str, int], tuple[str, float]] = {}
    totals: dict[str, dict[str, float]] = {}
    with top_n.harness(n) as top:
        for row in top.process_batch(sales):
            shown[row.shop, row.place] = (row.product, row.revenue)
    for shop, product, revenue in sales:
        totals.setdefault(shop, {})[product] = totals.get(shop, {}).get(product, 0.0) + revenue

    for shop, by_product in totals.items():
        best = sorted(by_product.items(), key=lambda item: (-item[1], item[0]))[:n]
        assert [shown[shop, place] for place in range(1, len(best) + 1)] == best


def page(minutes: float, name: str) -> tuple[Any, ...]:
    return "ann", name, START + timedelta(minutes=minutes)


def test_a_page_between_two_visits_makes_them_one() -> None:
    """Catches: sessions that do not merge, or whose states and timers stay behind when they do."""
    with session_windows.harness() as visits:
        visits.process_batch([page(0, "/b"), page(45, "/c")])
        assert len(visits.timers()) >= 2
        visits.process_batch([page(44.5, "/x")])
        visits.crash()
        visits.restore(parallelism=4)
        visits.close_input()

        assert [tuple(visit)[2:] for visit in visits.output] == [(0.0, 1, "/b"), (0.5, 2, "/x")]
        assert visits.timers() == []
    with session_windows.harness(parallelism=2) as visits:
        visits.process_batch([page(0, "/a"), page(20, "/mid"), page(45, "/c")])
        visits.close_input()
        assert [tuple(visit)[2:] for visit in visits.output] == [(45.0, 3, "/a")]


def test_pages_that_come_late() -> None:
    """Catches: a late page that does not correct its visit, or one that is too late and is counted all the same."""
    with session_windows.harness() as visits:
        visits.process(page(0, "/a"))
        visits.advance_watermark(START + timedelta(minutes=35))
        assert visits.process(page(2, "/late")) == [("ann", START, 2.0, 2, "/a")]
        visits.advance_watermark(START + timedelta(minutes=80))
        assert visits.process(page(3, "/lost")) == []

        assert [row.page for row in visits.side_output("too late")] == ["/lost"]
