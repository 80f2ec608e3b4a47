"""Functions, rows and backends for the tests of the harness."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import emberstate as es
from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, StateBackend
from emberstate.testing import Harness

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)

#: Every state backend there is, by name: each makes one in an empty folder.
BACKENDS: dict[str, Callable[[Path], StateBackend]] = {
    "memory": lambda folder: MemoryStateBackend(),
    "fs": lambda folder: FsStateBackend(folder / "checkpoints"),
}
if importlib.util.find_spec("emberstate.checkpoint.backends") is not None:

    def _rocksdb(folder: Path) -> StateBackend:
        module = importlib.import_module("emberstate.checkpoint.backends")
        made: StateBackend = module.RocksDBStateBackend(folder / "checkpoints")
        return made

    BACKENDS["rocksdb"] = _rocksdb


def at(seconds: float) -> datetime:
    """So many seconds after the tests' noon."""
    return T0 + timedelta(seconds=seconds)


class Totals(es.KeyedProcessFunction):
    """Sums amounts, keeps the last three, counts by shop; a quiet card puts out its total and is forgotten."""

    total = es.value_state(float, default=0.0)
    recent = es.list_state(float)
    shops = es.map_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        for timer in ctx.timers.list_event_time():
            ctx.timers.delete_event_time(timer.name, timer.time)
        ctx.timers.register_event_time("quiet", row.ts + timedelta(seconds=60))
        self.total.update(self.total.value() + row.amount)
        self.recent.update([*self.recent.get(), row.amount][-3:])
        self.shops[row.shop] = self.shops.get(row.shop, 0) + 1
        if row.amount < 0:
            raise ValueError("no such amount")
        yield row.card, "sum", self.total.value()

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield timer.key, timer.name, self.total.value()
        self.total.clear()
        self.recent.clear()
        self.shops.clear()


def totals(**options: Any) -> Harness:
    """A harness around `Totals`."""
    function = options.pop("function", None) or Totals()
    return Harness(
        function,
        schema="card string, shop string, amount double, ts timestamp",
        key="card",
        event_time="ts",
        out_of_orderness="10 seconds",
        output="card string, what string, total double",
        **options,
    )


def pay(card: str, amount: float, seconds: float, shop: str = "s") -> dict[str, Any]:
    """A row for `Totals`."""
    return {"card": card, "shop": shop, "amount": amount, "ts": at(seconds)}
