"""What windows fold, and the rows that they emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import emberstate as es


class Count(es.AggregateFunction[Any, int, int]):
    """The number of rows."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


class WithStart(es.ProcessWindowFunction):
    """Key, start, result."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        yield key, ctx.window.start_time, elements[0]


class WithEnd(es.ProcessWindowFunction):
    """Key, end, result."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        yield key, ctx.window.end_time, elements[0]


class WithBoth(es.ProcessWindowFunction):
    """Key, start, end, result."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Iterator[tuple[Any, ...]]:
        yield key, ctx.window.start_time, ctx.window.end_time, elements[0]
