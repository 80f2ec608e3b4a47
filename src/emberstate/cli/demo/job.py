"""The job of `emberstate demo`: card payments, watched per card. And the same rules as a plain loop over sorted rows,
to compare the result with.

A card's payments at one merchant are counted, and forgotten ten minutes after the last of them (a map state with a time
to live). From the third on, each is reported. When a card has been quiet for five minutes, a timer closes its session
and reports how much was spent.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.state.ttl.config import TtlConfig, TtlTime

PAYMENTS: Final = "card string, merchant string, cents bigint, ts timestamp"
REPORTS: Final = "card string, what string, merchant string, count bigint, cents bigint"

_FORGOTTEN: Final = timedelta(minutes=10)
_QUIET: Final = timedelta(minutes=5)
_REPEATED: Final = 3
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)

Payment = tuple[str, str, int, datetime]
Report = tuple[str, str, str | None, int, int]


class WatchedCards(KeyedProcessFunction):
    """The rules, with state, a timer and a time to live."""

    merchants = map_state(str, int, ttl=TtlConfig(_FORGOTTEN, time=TtlTime.EVENT))
    spent = value_state(int, default=0)
    payments = value_state(int, default=0)
    last = value_state(datetime)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Report]:
        """One payment."""
        count = self.merchants.get(row.merchant, 0) + 1
        self.merchants.put(row.merchant, count)
        self.spent.update(self.spent.value() + row.cents)
        self.payments.update(self.payments.value() + 1)
        before = self.last.value()
        if before is not None:
            ctx.timers.delete_event_time("quiet", before + _QUIET)
        self.last.update(row.ts)
        ctx.timers.register_event_time("quiet", row.ts + _QUIET)
        if count >= _REPEATED:
            yield row.card, "repeated", row.merchant, count, row.cents

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[Report]:
        """The card was quiet for five minutes: close its session."""
        yield timer.key, "session", None, self.payments.value(), self.spent.value()
        self.spent.clear()
        self.payments.clear()
        self.last.clear()


def in_a_loop(payments: Iterable[Payment], end: datetime) -> list[Report]:
    """The reports of sorted payments, up to `end`, without any of this library."""
    reports: list[Report] = []
    merchants: dict[tuple[str, str], tuple[int, datetime]] = {}
    sessions: dict[str, tuple[int, int, datetime]] = {}
    for card, merchant, cents, ts in payments:
        count, seen = merchants.get((card, merchant), (0, _START))
        count = 1 if ts - seen >= _FORGOTTEN else count + 1
        merchants[card, merchant] = count, ts
        number, spent, last = sessions.get(card, (0, 0, ts))
        if number and ts - last >= _QUIET:
            reports.append((card, "session", None, number, spent))
            number = spent = 0
        sessions[card] = number + 1, spent + cents, ts
        if count >= _REPEATED:
            reports.append((card, "repeated", merchant, count, cents))
    reports += [
        (card, "session", None, number, spent)
        for card, (number, spent, last) in sessions.items()
        if last + _QUIET <= end
    ]
    return sorted(reports, key=repr)


def generate(folder: Path, files: int, rows: int, seed: int) -> tuple[list[Payment], datetime]:
    """Write payments as a stream would bring them, in order of time, a file per batch; and return them.

    The last two files have one payment each, some minutes after all others: with them all sessions are over.
    """
    choose = random.Random(seed)
    now = _START
    everything: list[Payment] = []
    for number in range(files):
        payments: list[Payment] = []
        for _ in range(rows):
            now += timedelta(milliseconds=choose.randrange(1, 400))
            card = f"card-{int(choose.triangular(0, 400, 0)):03}"
            payments.append((card, f"shop-{choose.randrange(12)}", choose.randrange(100, 20_000), now))
        _write(folder, number, payments)
        everything += payments
    end = now + _QUIET + timedelta(minutes=1)
    for number in range(2):
        late: Payment = ("card-closing-time", "bank", 1, end + timedelta(seconds=number))
        _write(folder, files + number, [late])
        everything.append(late)
    return everything, end


def _write(folder: Path, number: int, payments: list[Payment]) -> None:
    """Write a file that appears at once: the stream may look at any time."""
    columns = [pa.array(column) for column in zip(*payments, strict=True)]
    table = pa.table(columns, names=["card", "merchant", "cents", "ts"])
    hidden = folder / f".{number}"
    pq.write_table(table.set_column(3, "ts", table.column("ts").cast(pa.timestamp("us", "UTC"))), hidden)
    hidden.rename(folder / f"{number:05}.parquet")
