"""Expired state goes while transactions pass, without anybody asking for it."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator

SECOND = 1_000_000


class Seen(KeyedProcessFunction):
    """Remembers for ten seconds."""

    last = value_state(int, ttl="10 seconds")
    shops = map_state(str, int, ttl="10 seconds")

    def process_element(self, row: Any, ctx: Any) -> None:
        """Remember."""
        self.last.update(1)
        self.shops["tea"] = 1


@pytest.mark.reliability(22)
def test_the_end_of_a_transaction_removes_what_has_expired() -> None:
    """Catches: expired entries of keys that never come again, kept for ever."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(int))
    operator = KeyedOperator("seen", Seen(), backend)
    operator.open()
    operator.begin(processing_time=0)
    for key in range(300):
        operator.process(key, (key,))
    operator.end()
    assert backend.number_of_entries() == 600

    for number in range(3):
        operator.begin(processing_time=(10 + number) * SECOND)
        operator.end()
    assert backend.number_of_entries() == 0
    operator.close()


def test_a_failed_transaction_removes_nothing() -> None:
    """Catches: clean-up outside the transaction, which a roll-back does not undo."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(int))
    operator = KeyedOperator("seen", Seen(), backend)
    operator.open()
    operator.begin(processing_time=0)
    operator.process(1, (1,))
    operator.end()
    with operator.snapshot() as before:
        operator.begin(processing_time=20 * SECOND)
        operator.end()
        assert backend.number_of_entries() == 0
        operator.roll_back(before)
        assert backend.number_of_entries() == 2
    operator.close()
