"""Orders for `examples/kafka_orders.py` as records of Kafka, and the totals that must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 5, 4, 12, tzinfo=UTC)

Order = tuple[str, int, float]


def some_orders(number: int, first: int = 0) -> list[Order]:
    """Orders of seven customers; each has its own whole amounts, so that sums are exact."""
    return [(f"c{n % 7}", n, float(n % 13)) for n in range(first, first + number)]


def moment(number: int) -> datetime:
    """When an order was made."""
    return START + timedelta(milliseconds=100 * number)


def records(given: Iterable[Order], partitions: int) -> list[dict[str, Any]]:
    """The records; a customer has one partition, so that his orders keep their order."""
    return [
        {
            "key": customer, "value": json.dumps({"order": number, "amount": amount}),
            "headers": [("region", b"north"), ("region", b"again")], "partition": int(customer[1:]) % partitions,
            "timestamp": int(moment(number).timestamp() * 1000),
        }
        for customer, number, amount in given
    ]  # fmt: skip


def totals(given: Iterable[Order]) -> list[tuple[str, int, float, datetime]]:
    """What comes out, sorted."""
    counts: dict[str, tuple[int, float]] = {}
    found = []
    for customer, number, amount in given:
        count, total = counts.get(customer, (0, 0.0))
        counts[customer] = count + 1, total + amount
        found.append((customer, *counts[customer], moment(number)))
    return sorted(found)
