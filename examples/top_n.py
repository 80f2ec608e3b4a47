"""The best-selling products of every shop, kept up to date: a row for each place that changes.

A shop's revenue by product is a map in state; a sale touches one entry of it, however many there are. The ranking that
was last put out is a list, so that only what has changed is put out again. Run it to see a shop's top three change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

import emberstate as es
from emberstate.testing import Harness

SALES = "shop string, product string, revenue double"
RANKING = "shop string, place int, product string, revenue double"


class TopN(es.KeyedProcessFunction):
    """The `n` products with the largest revenue; of equal ones, the first by name."""

    revenue = es.map_state(str, float)
    ranking = es.list_state(tuple[str, float])

    def __init__(self, n: int) -> None:
        self.n = n

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        self.revenue[row.product] = self.revenue.get(row.product, 0.0) + row.revenue
        before = list(self.ranking.get())
        # Only a product that was sold can have moved: the rest of the map need not be looked at, unless one fell out.
        candidates = {name: amount for name, amount in before if name != row.product}
        candidates[row.product] = self.revenue[row.product]
        if row.revenue < 0:
            candidates = dict(self.revenue.items())
        best = heapq.nsmallest(self.n, candidates.items(), key=lambda item: (-item[1], item[0]))
        for place, now in enumerate(best, start=1):
            if place > len(before) or before[place - 1] != now:
                yield row.shop, place, *now
        self.ranking.update(best)


def harness(n: int = 3, **options: Any) -> Harness:
    """The function in a harness, as a pipeline would declare it."""
    return Harness(TopN(n), schema=SALES, key="shop", output=RANKING, name="top-n", **options)


def main() -> None:
    """Sell some fruit and print how the ranking changes."""
    sales = [
        ("north", "apple", 5.0),
        ("north", "pear", 3.0),
        ("south", "plum", 9.0),
        ("north", "fig", 4.0),
        ("north", "kiwi", 1.0),
        ("north", "kiwi", 7.0),
        ("north", "apple", -4.0),
    ]
    with harness() as top:
        for sale in sales:
            changed = [f"{row.place}. {row.product} ({row.revenue:.0f})" for row in top.process(sale)]
            print(f"{sale[0]}: {sale[1]} for {sale[2]:.0f}: {', '.join(changed) or 'no change'}")


if __name__ == "__main__":
    main()
