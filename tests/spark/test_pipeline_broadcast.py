"""Broadcast state on real slots: it is compared at every commit, and drift is refused."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers
from emberstate.errors import UserFunctionError
from tests.raising import raising
from tests.spark.spark_session import wait_for
from tests.spark.streams import EVENTS, Kept, Stream, at

pytestmark = pytest.mark.spark

RULES = "rule string, words array<string>"


class Words(es.KeyedBroadcastProcessFunction):
    """Counts the words of all rules, which are kept as sets; "mine" gets one that every process has of its own."""

    words = es.broadcast_state(str, set[str])
    total = es.value_state(int, default=0)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        known = self.words.setdefault(row.rule, set())
        known.symmetric_difference_update(row.words)
        if row.rule == "mine":
            known.add(f"process {os.getpid()}")

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() + row.value * sum(map(len, self.words.values())))
        yield row.key, self.total.value()


@pytest.mark.long
def test_drift_between_slots_is_refused_and_agreement_is_not(stream: Stream, slots: Any) -> None:
    """Catches: a function that does not do the same in every slot, committed from one of them; and a false alarm for
    one that does, between a slot that is hot and one that was restored, whose sets have another order."""
    spark, kept = stream.spark, Kept()
    stage = stream.pipeline().key_by("key").event_time("ts").broadcast("rules")
    pipeline = stage.process("rules", Words(), "key string, total bigint").sink(kept)

    def run(batch: int, *rules: tuple[str, list[str]]) -> None:
        rows = spark.createDataFrame([(f"k{n}", at(batch), 1) for n in range(8)], EVENTS)
        pipeline(pipeline.inputs(rows, rules=spark.createDataFrame([*rules], RULES)), batch)

    words = [f"word {number}" for number in range(40)]
    of_other_tests = set(slots())
    run(0, ("some", words), ("others", words[::3]))
    victim = min(set(slots()) - of_other_tests)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: victim not in slots(), "its end")
    run(1, ("some", words[5:30]), ("new", words[:7]))  # 15 and 7 words; 14 of the others
    assert pipeline.last_progress is not None
    assert dict(pipeline.last_progress.slots) == {"hot": 1, "rolled back": 0, "restored": 1}
    run(2, ("some", words[10:]))
    last = max(checkpoint_numbers(stream.backend().open_storage()))
    with raising(UserFunctionError, "slots 0 and 1", operator="rules", slot=1, state="words"):
        run(3, ("mine", words[:1]))
    assert max(checkpoint_numbers(stream.backend().open_storage())) == last, "nothing was committed"
    run(3, ("some", words[:1]))  # the function corrected: the batch comes again, and nothing of the try is left
    first, second = len(words) + 14, 15 + 14 + 7
    third = len(set(words[:5] + words[30:]) ^ set(words[10:])) + 14 + 7
    fourth = len(set(words[:5] + words[30:]) ^ set(words[10:]) ^ {words[0]}) + 14 + 7
    totals = [first, first + second, first + second + third, first + second + third + fourth]
    assert sorted(kept.rows) == sorted((f"k{n}", total) for n in range(8) for total in totals)
