"""A function with every kind of state, for the command line to look at; and variants of it to restore into."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import emberstate as es
from emberstate.checkpoint.backends import FsStateBackend, RocksDBStateBackend, StateBackend
from emberstate.testing import Harness

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclasses.dataclass
class Payment:
    """What a card paid last."""

    shop: str
    amount: Decimal
    tags: dict[str, int]


class Mean(es.AggregateFunction[float, tuple[float, int], float]):
    """The mean of what was added."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]


class Cards(es.KeyedProcessFunction):
    """Keeps what cards pay, in every way there is."""

    last = es.value_state(Payment)
    amounts = es.list_state(float)
    shops = es.map_state(str, int, ttl=timedelta(hours=1))
    best = es.reducing_state(max, float)
    mean = es.aggregating_state(Mean(), tuple[float, int])

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        self.last.update(Payment(row.shop, Decimal(str(row.amount)), {"n": 1}))
        self.amounts.add(row.amount)
        self.shops[row.shop] = self.shops.get(row.shop, 0) + 1
        self.best.add(row.amount)
        self.mean.add(row.amount)
        ctx.timers.register_event_time("quiet", row.ts + timedelta(minutes=5))
        yield row.card, self.best.get()

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        yield timer.key, 0.0


class Renamed(es.KeyedProcessFunction):
    """The same with another name for `best`, without `amounts`, and one state more."""

    last = es.value_state(Payment)
    shops = es.map_state(str, int, ttl=timedelta(hours=1))
    highest = es.reducing_state(max, float)
    mean = es.aggregating_state(Mean(), tuple[float, int])
    extra = es.value_state(int)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        yield row.card, self.highest.get()

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        yield timer.key, 0.0


def harness(state_backend: StateBackend, function: Any = None, **options: Any) -> Harness:
    """A harness around `Cards`."""
    return Harness(
        function or Cards(),
        schema="card string, shop string, amount double, ts timestamp",
        key="card",
        event_time="ts",
        output="card string, best double",
        name="cards",
        state_backend=state_backend,
        **{"parallelism": 2, "max_parallelism": 16, **options},
    )


def pay(card: str, amount: float, minute: int = 0, shop: str = "bakery") -> tuple[Any, ...]:
    """A row."""
    return card, shop, amount, NOON + timedelta(minutes=minute)


def make_location(folder: Path, backend: str) -> None:
    """Run the job: an opening (1) and three batches (2 to 4)."""
    make = {"fs": FsStateBackend, "rocksdb": RocksDBStateBackend}[backend]
    with harness(make(folder)) as running:
        running.process_batch([pay(f"card-{number}", float(number)) for number in range(20)])
        running.process_batch([pay("ann", 3.5), pay("bob", 8.25, shop="books"), pay("card-3", 70.0)])
        running.process_batch([pay("ann", 20.0, 1, "books")])


class Limits(es.KeyedBroadcastProcessFunction):
    """Counts payments above a limit that is broadcast."""

    limits = es.broadcast_state(str, float)
    above = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        if row.amount > self.limits["all"]:
            self.above.update(self.above.value() + 1)

    def process_broadcast_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.limits["all"] = row.limit


def limits(state_backend: StateBackend, **options: Any) -> Harness:
    """A harness around `Limits`."""
    return Harness(
        Limits(),
        schema="card string, amount double",
        key="card",
        broadcast="limit double",
        state_backend=state_backend,
        **{"name": "limits", "parallelism": 2, "max_parallelism": 16, **options},
    )
