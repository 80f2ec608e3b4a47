"""Broadcast state that is not the same in all slots is refused before it is committed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import StateTypeError, UserFunctionError
from emberstate.testing import Harness
from tests.raising import raising

tickets = itertools.count()


class Words(es.KeyedBroadcastProcessFunction):
    """Keeps words by rule, as sets; one rule gets what no other slot has."""

    words = es.broadcast_state(str, set[str])
    fine = es.broadcast_state(str, int)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self.fine["rows"] = self.fine.get("rows", 0) + 1
        known = self.words.setdefault(row.rule, set())
        known.update(row.words)
        if row.rule == "drifting":
            known.add(f"ticket {next(tickets)}")
        elif row.rule == "shrinking":
            known.remove(min(known))

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield row.k, sum(row.word in words for words in self.words.values())


def words(parallelism: int, state_backend: StateBackend) -> Harness:
    return Harness(
        Words(),
        name="rules",
        schema="k string, word string",
        key="k",
        broadcast="rule string, words array<string>",
        output="k string, n int",
        parallelism=parallelism,
        state_backend=state_backend,
    )


def test_a_function_that_does_not_do_the_same_in_all_slots_is_refused(state_backend: StateBackend) -> None:
    """Catches: slots whose rules drift apart, of which one is stored and the others go on until a restart."""
    with words(2, state_backend) as harness:
        harness.process_broadcast(("plain", ["a", "b"]))
        with raising(UserFunctionError, "words", operator="rules", slot=1):
            harness.process_broadcast(("drifting", ["a"]))
        assert harness.broadcast_state("words") == {"plain": {"a", "b"}}
        assert harness.broadcast_state("fine") == {"rows": 1}
        harness.process_broadcast(("plain", ["c"]))
        assert sorted(harness.process_batch([("x", "c"), ("y", "c"), ("z", "d")])) == [("x", 1), ("y", 1), ("z", 0)]
        harness.restore(parallelism=1)
        harness.process_broadcast(("drifting", ["a"]))  # nobody to agree with
        assert harness.broadcast_state("fine") == {"rows": 3}


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_function_that_does_is_not(parallelism: int, state_backend: StateBackend) -> None:
    """Catches: a false alarm after crashes, roll-backs, restores and another parallelism."""
    given = [("plain", ["a", "b"]), ("shrinking", ["c", "d", "e"]), ("plain", ["f"]), ("shrinking", ["c"])]
    with words(parallelism, state_backend) as harness:
        for number, row in enumerate(given * 2):
            if number % 3 == 1:
                harness.crash("after prepare" if number % 2 else "after commit")
            harness.process_broadcast(row)
            with pytest.raises(StateTypeError):
                harness.process_broadcast(("plain", [None]))
            if number == 5:
                harness.restore(parallelism=5 - parallelism)
        assert harness.broadcast_state("words")["plain"] == {"a", "b", "f"}
