"""What a program says about stored state that it does not have any more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import Place, RestoreRefusedError, StateDeclarationError
from tests.raising import raising
from tests.spark.streams import EVENTS, Kept, Stream, at

pytestmark = pytest.mark.spark

OUT = "key string, n bigint"


class Before(es.KeyedBroadcastProcessFunction):
    """Three states, and one of the broadcast side."""

    n = es.value_state(int, default=0)
    last = es.value_state(int)
    seen = es.list_state(int)
    rules = es.broadcast_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.n.update(self.n.value() + row.value)
        self.last.update(row.value)
        self.seen.add(row.value)
        yield row.key, self.n.value()

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self.rules[row.key] = row.value


class After(es.KeyedProcessFunction):
    """One of them, under another name."""

    total = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.total.update(self.total.value() + row.value)
        yield row.key, self.total.value()


def test_calls_of_restore_add_up_and_a_stage_is_dropped(stream: Stream) -> None:
    """Catches: a second restore(…) that forgets the first; a renamed stage whose way out a pipeline does not have."""
    spark, kept = stream.spark, Kept()
    frame = spark.createDataFrame([("a", at(0), 1)], EVENTS)

    def pipeline(name: str, function: Any) -> Any:
        stage = stream.pipeline().key_by("key")
        return (stage.broadcast("rules") if function is Before else stage).process(name, function(), OUT).sink(kept)

    first = pipeline("old", Before)
    first(first.inputs(frame, rules=frame), 0)
    with raising(RestoreRefusedError, r"old/broadcast.*drop_stages", operator="old"):
        pipeline("new", After)(frame, 1)
    # The stage is dropped, broadcast state included, and the new one starts empty; what else is said stays said.
    second = pipeline("new", Before).restore(drop_stages=["other"]).restore(drop_stages=["old"])
    second(second.inputs(frame, rules=frame), 1)
    third = (
        pipeline("new", After)
        .restore(drop_states=["last"])
        .restore("new", drop_states=["seen"])
        .restore(rename_states={"n": "total"})
        .restore(drop_stages=["new/broadcast"])
    )
    third(frame, 2)
    assert kept.rows == [("a", 1), ("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (
            {"drop_states": ["n"]},
            {"keep_states": ["n"]},
            {"state": "n", "option": "drop_states", "found": "keep_states"},
        ),
        (
            {"rename_states": {"n": "m"}},
            {"drop_states": ["n"]},
            {"state": "n", "option": "drop_states", "found": "rename_states"},
        ),
        (
            {"rename_states": {"n": "m"}},
            {"rename_states": {"n": "k"}},
            {"state": "n", "option": "rename_states", "expected": "m", "found": "k"},
        ),
        (
            {"rename_fields": {"p": {"a": "b"}}},
            {"rename_fields": {"p": {"a": "c"}}},
            {"state": "p", "field": "a", "option": "rename_fields", "expected": "b", "found": "c"},
        ),
        ({}, {"drop_states": "last"}, {"option": "drop_states", "found": "last"}),
        ({"drop_stages": ["old"]}, {"drop_stages": ["new"]}, {"operator": "new", "option": "drop_stages"}),
    ],
)
def test_contradictions_are_refused(first: Any, second: Any, place: Place) -> None:
    """Catches: of two things said about one state, one that is forgotten."""
    pipeline = es.Pipeline("job", es.MemoryStateBackend()).key_by("key").process("new", After(), OUT)
    with raising(StateDeclarationError, **place):
        pipeline.restore(**first).restore(**second)
    assert pipeline.restore(**first).restore(**first) is not None
