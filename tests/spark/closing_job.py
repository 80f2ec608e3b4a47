"""Bursts, and those of a minute: two stages whose output depends on when windows close; and what it must come to."""

from __future__ import annotations

from typing import Any

import emberstate as es
from tests.spark.pipeline_functions import BURSTS, GAP, Bursts, bursts, events
from tests.spark.streams import at

MINUTES = "key string, minute timestamp, total bigint"


class Sum(es.AggregateFunction[Any, Any, int]):
    """Adds up the column `total`."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, row: Any, accumulator: int) -> int:
        return accumulator + int(row.total)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, left: int, right: int) -> int:
        return left + right


class Minute(es.ProcessWindowFunction):
    """Names the minute."""

    def process(self, key: Any, ctx: Any, elements: Any) -> Any:
        (total,) = elements
        yield key, ctx.window.start_time, total


def two_stages(pipeline: es.Pipeline, sink: Any) -> es.Pipeline:
    """The stages, on a pipeline that has none."""
    stage = pipeline.key_by("key").event_time("ts").process("bursts", Bursts(), BURSTS)
    windows = stage.key_by("key").event_time("last", GAP).window(es.TumblingEventTimeWindows.of("1 minute"))
    return windows.aggregate("minutes", Sum(), MINUTES, accumulator_type=int, function=Minute()).sink(sink)


def minutes(given: list[Any], until: float | None) -> list[Any]:
    """The minutes that are over at a time, by plain Python."""
    sums: dict[tuple[str, Any], int] = {}
    for key, _, last, total in bursts(given):
        begin = last.replace(second=0, microsecond=0)
        sums[key, begin] = sums.get((key, begin), 0) + total
    end = None if until is None else at(until)
    over = [(key, begin, total) for (key, begin), total in sums.items()]
    return sorted(one for one in over if end is None or (end - one[1]).total_seconds() >= 60)


#: Bursts that end by the row at 300 seconds, one that does not, and rows that come later.
GIVEN = [row for row in events(60, keys=5) if row[1] < at(200)]
LAST = ("z", at(300), 1)
MORE = [("z", at(305), 2), ("k1", at(306), 1), ("y", at(500), 4)]


def cut(rows: list[Any], parts: int) -> list[list[Any]]:
    """So many files."""
    size = -(-len(rows) // parts)
    return [rows[n : n + size] for n in range(0, len(rows), size)]
