"""Fraud rules with timeouts: what a card does is judged by what it did a moment ago, and forgotten after a while.

- *probe*: a payment below 1 followed within ten minutes by one above 500 looks like a stolen card being tried.
- *burst*: more than three payments within a minute.
- *unconfirmed*: a payment above 1,000 must be confirmed within fifteen minutes, else the card is blocked.

Each rule has its own timer, so each forgets at its own time. Run it to see a card being tried, tested and blocked.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import emberstate as es
from emberstate.testing import Harness

PAYMENTS = "card string, kind string, amount double, ts timestamp"
ALERTS = "card string, rule string, amount double, ts timestamp"

PROBE_FOR = timedelta(minutes=10)
BURST_FOR = timedelta(minutes=1)
CONFIRM_WITHIN = timedelta(minutes=15)


class FraudRules(es.KeyedProcessFunction):
    """The rules, for one card."""

    probed = es.value_state(bool, default=False)
    burst = es.list_state(datetime)
    unconfirmed = es.value_state(float)
    blocked = es.value_state(bool, default=False)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        if row.kind == "confirmation":
            self.unconfirmed.clear()
            for timer in ctx.timers.list_event_time():
                if timer.name == "unconfirmed":
                    ctx.timers.delete_event_time(timer.name, timer.time)
            return
        if self.blocked.value():
            yield row.card, "blocked", row.amount, row.ts
            return
        if self.probed.value() and row.amount > 500:
            yield row.card, "probe", row.amount, row.ts
        if row.amount < 1:
            self.probed.update(True)
            ctx.timers.register_event_time("forget probe", row.ts + PROBE_FOR)
        recent = [then for then in self.burst.get() if then > row.ts - BURST_FOR]
        recent.append(row.ts)
        self.burst.update(recent)
        ctx.timers.register_event_time("forget burst", row.ts + BURST_FOR)
        if len(recent) > 3:
            yield row.card, "burst", row.amount, row.ts
        if row.amount > 1_000:
            self.unconfirmed.update(row.amount)
            ctx.timers.register_event_time("unconfirmed", row.ts + CONFIRM_WITHIN)

    def on_timer(self, timer: es.KeyedTimer, ctx: es.FunctionContext) -> Iterator[tuple[Any, ...]]:
        if timer.name == "forget probe":
            self.probed.clear()
        elif timer.name == "forget burst":
            self.burst.update([then for then in self.burst.get() if then > timer.time - BURST_FOR])
        else:
            amount = self.unconfirmed.value()
            if amount is not None:
                self.unconfirmed.clear()
                self.blocked.update(True)
                yield timer.key, "unconfirmed", amount, timer.time


def harness(**options: Any) -> Harness:
    """The rules in a harness, as a pipeline would declare them."""
    return Harness(
        FraudRules(),
        schema=PAYMENTS,
        key="card",
        event_time="ts",
        out_of_orderness="30 seconds",
        output=ALERTS,
        name="fraud-rules",
        **options,
    )


def main() -> None:
    """Run a short story and print the alerts."""
    start = datetime(2026, 5, 4, 9, tzinfo=UTC)

    def pay(card: str, minutes: float, amount: float, kind: str = "payment") -> dict[str, Any]:
        return {"card": card, "kind": kind, "amount": amount, "ts": start + timedelta(minutes=minutes)}

    story = [
        pay("ann", 0, 0.5),
        pay("bob", 1, 1_500),
        pay("ann", 5, 800),
        *(pay("eve", 6 + second / 60, 20) for second in (0, 5, 10, 15)),
        pay("dan", 7, 2_000),
        pay("bob", 10, 0, "confirmation"),
        pay("ann", 20, 900),
        pay("dan", 40, 5),
    ]
    with harness(parallelism=2) as rules:
        for row in story:
            for alert in rules.process(row):
                print(f"{alert.ts:%H:%M:%S}  {alert.card}  {alert.rule:12}{alert.amount:10.2f}")
        rules.close_input()
        print(f"{len(rules.output)} alerts of {len(story)} rows; still known: {rules.keys('blocked')} blocked")


if __name__ == "__main__":
    main()
