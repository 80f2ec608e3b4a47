"""The fraud rules, rule by rule."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from examples.fraud_rules import harness

from emberstate.testing import Harness

START = datetime(2026, 5, 4, 9, tzinfo=UTC)


@pytest.fixture
def rules() -> Iterator[Harness]:
    """The rules, before any payment."""
    with harness() as made:
        yield made


def pay(minutes: float, amount: float, kind: str = "payment") -> tuple[Any, ...]:
    return "ann", kind, amount, START + timedelta(minutes=minutes)


@pytest.mark.parametrize(("minutes", "alerts"), [(9.9, ["probe"]), (10, ["probe"]), (10.6, []), (30, [])])
def test_a_probe_is_forgotten_after_ten_minutes(minutes: float, alerts: list[str], rules: Harness) -> None:
    """Catches: a probe that is never forgotten, or too soon; rows up to 30 seconds late count as in time."""
    rules.process(pay(0, 0.5))

    assert [alert.rule for alert in rules.process(pay(minutes, 501))] == alerts


def test_an_ordinary_card_raises_nothing(rules: Harness) -> None:
    """Catches: a rule that fires by itself."""
    rules.process(*(pay(minute, 50) for minute in range(20)))
    rules.close_input()

    assert rules.output == []
    assert (rules.timers(), rules.keys("burst"), rules.keys("probed")) == ([], [], [])


def test_a_burst(rules: Harness) -> None:
    """Catches: a burst of three, or payments of more than a minute ago that still count."""
    assert rules.process(pay(0, 5), pay(0.5, 5), pay(0.9, 5)) == []
    assert rules.process(pay(1.1, 5)) == []
    assert [alert.rule for alert in rules.process(pay(1.2, 5))] == ["burst"]


def test_an_unconfirmed_payment_blocks_the_card(rules: Harness) -> None:
    """Catches: a timeout that never comes, or comes although the payment was confirmed."""
    rules.process(pay(0, 1_001), pay(14, 0, "confirmation"), pay(20, 2_000))
    assert rules.advance_watermark(START + timedelta(minutes=34)) == []
    assert [alert.amount for alert in rules.advance_watermark(START + timedelta(minutes=35))] == [2_000]
    rules.crash()

    assert [alert.rule for alert in rules.process(pay(40, 1))] == ["blocked"]
    assert rules.state("blocked", "ann") is True
