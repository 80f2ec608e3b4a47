"""The plan of a keyed stage: names as they are, and few calls into the JVM for a batch."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient  # type: ignore[import-untyped]

import emberstate as es
from emberstate.runtime.rows.columns import quoted
from emberstate.spark.driver.sql_text import text_literal
from emberstate.spark.plan.stage import row_type_of_frame
from tests.spark.pipeline_functions import TOTALS, Totals
from tests.spark.streams import Kept, Stream, at

pytestmark = pytest.mark.spark

#: Columns that text has to quote: what a backtick, a dot, a space or a quote would end, and names that differ by case.
STRANGE = ["a`b", "a.b", "a b", "a'b", 'a"b', "größe", "键", "Größe", "select", "``", "a -- b"]
#: Calls into the JVM for a tiny batch, its own sink apart. It was 281 before plans were kept; 60 when this was written.
CALLS = 85


class Echo(es.KeyedProcessFunction):
    """Every row as it came, and how many the key has had."""

    n = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.n.update(self.n.value() + 1)
        return (*row, self.n.value())


def test_names_are_quoted(stream: Stream) -> None:
    """Catches: a name that SQL text ends early, reads as a field of a struct, or takes for another's."""
    spark = stream.spark.newSession()
    spark.conf.set("spark.sql.caseSensitive", "true")
    schema = ", ".join(f"{quoted(name)} bigint" for name in STRANGE)
    row = tuple(range(len(STRANGE)))
    rows = [(*row, at(1)), (*row, at(0)), (*row[:-1], 70, at(2))]
    frame = spark.createDataFrame(rows, f"{schema}, `t.``s` timestamp")
    output = f"{row_type_of_frame(frame.schema, 'the test').schema}, n bigint"
    for keys in (STRANGE[:5], STRANGE[5:]):
        kept = Kept()
        stage = stream.pipeline("memory").key_by(*keys).event_time("t.`s")
        stage.process("echo", Echo(), output).sink(kept).run(frame)
        last = 3 if keys == STRANGE[:5] else 1
        assert sorted(kept.rows) == sorted([(*rows[1], 1), (*rows[0], 2), (*rows[2], last)])


def test_literals_are_what_they_say(spark: Any) -> None:
    """Catches: a text that a setting of Spark's parser reads in another way."""
    strange = ["it's", 'a "b"', "back\\slash", "\\n", "%s", "größe 键", ""]
    for escaped in ("true", "false"):
        session = spark.newSession()
        session.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
        (found,) = session.range(1).selectExpr(*(text_literal(one) for one in strange)).collect()
        assert list(found) == strange


def test_a_tiny_batch_makes_few_calls(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a plan that is put together anew for every batch, settings that are read again and again."""
    calls: Counter[int] = Counter()
    counting: list[int] = []
    send = GatewayClient.send_command
    batches = threading.local()

    def counted(self: Any, command: str, *rest: Any, **more: Any) -> Any:
        if getattr(batches, "number", None) is not None and not command.startswith("m\nd"):  # not of what is freed
            calls[batches.number] += 1
        return send(self, command, *rest, **more)

    monkeypatch.setattr(GatewayClient, "send_command", counted)
    stream.add(*[[("a", at(number), 1)] for number in range(4)])
    pipeline = stream.pipeline().key_by("key").process("totals", Totals(), TOTALS).sink(lambda df, batch: None)

    def run(df: Any, batch: int) -> None:
        batches.number = batch
        counting.append(batch)
        try:
            pipeline(df, batch)
        finally:
            batches.number = None

    stream.drain(run)  # type: ignore[arg-type]
    assert counting == [0, 1, 2, 3]
    assert 10 < calls[2] <= CALLS and 10 < calls[3] <= CALLS, calls
