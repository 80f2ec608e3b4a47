"""Aggregates computed from the rows themselves, in plain Python, and rows combined as Spark combines them.

Nothing here uses records, partial columns or states: what it returns is what the words of the documentation say.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

from hypothesis import strategies as st

import emberstate as es
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.partials import PartialRows
from emberstate.runtime.aggregates.record import RecordFunction
from emberstate.runtime.aggregates.spec import LATEST, PANE_END, PANE_START, ROWS, TIME, AggregateSpec
from emberstate.runtime.rows.times import from_micros

SCHEMA = "key string, ts timestamp, amount bigint, price double, cost decimal(10,2), flag boolean, word string"

AGGREGATES: dict[str, Aggregate] = {
    "n": es.count(),
    "amounts": es.count("amount"),
    "total": es.sum("amount"),
    "prices": es.sum("price"),
    "costs": es.sum("cost"),
    "average": es.mean("amount"),
    "cost": es.mean("cost"),
    "least": es.min("price"),
    "most": es.max("price"),
    "opened": es.first("amount"),
    "closed": es.last("word"),
    "flagged": es.any("flag"),
    "words": es.distinct("word"),
    "best": es.top(2, "word", by="amount"),
    "all": es.collect("amount"),
}


class Event(NamedTuple):
    """A row of the input; its time is in microseconds."""

    key: str
    ts: int
    amount: int | None
    price: float | None
    cost: Decimal | None
    flag: bool | None
    word: str | None

    def row(self) -> tuple[Any, ...]:
        """As the stage gets it."""
        return (self.key, from_micros(self.ts), *self[2:])


def expected(events: list[Event]) -> tuple[Any, ...]:
    """The results of `AGGREGATES`; rows of one time are in the order in which they came."""
    amounts = [e.amount for e in events if e.amount is not None]
    prices = [e.price for e in events if e.price is not None]
    costs = [e.cost for e in events if e.cost is not None]
    flags = [e.flag for e in events if e.flag is not None]
    by_time = sorted(events, key=lambda e: e.ts)
    numbers = [p for p in prices if not math.isnan(p)]
    best = sorted((e for e in events if e.amount is not None), key=lambda e: -(e.amount or 0))[:2]
    return (
        len(events),
        len(amounts),
        sum(amounts) if amounts else None,
        sum(prices) if prices else None,
        sum(costs, Decimal(0)) if costs else None,
        sum(amounts) / len(amounts) if amounts else None,
        (sum(costs, Decimal(0)) / len(costs)).quantize(Decimal("1.000000"), ROUND_HALF_UP) if costs else None,
        min(numbers) if numbers else (math.nan if prices else None),
        math.nan if len(numbers) < len(prices) else max(prices, default=None),
        by_time[0].amount,
        by_time[-1].word,
        any(flags) if flags else None,
        len({e.word for e in events} - {None}),
        [(e.word, e.amount) for e in best],
        sorted(amounts),
    )


def comparable(results: tuple[Any, ...]) -> tuple[Any, ...]:
    """Results to compare: NaN equals itself, collected values are in any order, structs are tuples."""
    *others, best, collected = results
    return (*(repr(one) if isinstance(one, float) else one for one in others), [tuple(b) for b in best],
            sorted(collected))  # fmt: skip


class Combiner:
    """Makes partial rows of the rows of a batch, as Spark does."""

    def __init__(self, spec: AggregateSpec) -> None:
        self._spec = spec
        self._partials = PartialRows(spec)
        self._merging = RecordFunction(spec)
        self._at = {name: place for place, name in enumerate(spec.partial.names)}
        self._row_class = spec.partial.row_class

    def single(self, events: list[Event]) -> list[tuple[str, int, Any]]:
        """A partial row for each row, as (key, time, partial row), in order of time."""
        by_time = sorted(events, key=lambda event: event.ts)
        return [(e.key, e.ts, self._partials.of(e.row(), e.ts if self._spec.event_time else None)) for e in by_time]

    def combined(self, events: list[Event], watermark: int) -> list[tuple[str, int, Any]]:
        """One for each key and pane; late rows single."""
        spec, at = self._spec, self._at
        found: dict[Any, tuple[str, int, list[Any]]] = {}
        for number, (key, time, row) in enumerate(self.single(events)):
            pane = None
            if spec.has_panes:
                pane = row[at[PANE_START]]
                if spec.is_sessions:
                    pane //= row[at[PANE_END]] - pane  # a cell as wide as the gap
            place = key, pane, number if spec.event_time and time < watermark else None
            if place not in found:
                found[place] = (key, time, list(row))
                continue
            values = found[place][2]
            self._merge(values, row)
            if spec.is_sessions:
                values[at[PANE_END]] = row[at[PANE_END]]
                values[at[LATEST]] = row[at[LATEST]]
            else:
                found[place] = (key, time, values)
                if spec.event_time:
                    values[at[TIME]] = row[at[TIME]]
        rows = [(key, time, self._row_class(*values)) for key, time, values in found.values()]
        return sorted(rows, key=lambda row: row[1])

    def _merge(self, values: list[Any], row: Any) -> None:
        merging, at = self._merging, self._at
        record = merging.add(row, merging.add(values, merging.create_accumulator()))
        for column in self._spec.record:
            values[at[column.name]] = getattr(record, column.name)
        for name, aggregate in self._spec.aggregates:
            if not aggregate.in_record:
                [place] = [at[column.name] for column in aggregate.partial(name, self._spec.input)]
                values[place] = values[place] + row[place]
        values[at[ROWS]] += 1


def events(count: int = 40) -> st.SearchStrategy[list[Event]]:
    """Rows of two keys, around one another in time, with nulls and NaN; amounts are never the same twice."""
    made = st.builds(
        Event,
        st.sampled_from(["ann", "bob"]),
        st.integers(0, 60),
        st.none() | st.integers(-50, 50),
        st.none() | st.sampled_from([-1.5, 0.0, 2.0, 1e6, math.nan]),
        st.none() | st.integers(-999, 999).map(lambda cents: Decimal(cents).scaleb(-2)),
        st.none() | st.booleans(),
        st.none() | st.sampled_from(["a", "b", "c", "d"]),
    )

    def told_apart(found: list[Event]) -> list[Event]:
        return [
            e._replace(amount=None if e.amount is None else e.amount * 1000 + number) for number, e in enumerate(found)
        ]

    return st.lists(made, min_size=8, max_size=count).map(told_apart)
