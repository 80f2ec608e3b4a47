"""Functions that pipelines run in tests, and what they must come to, in plain Python."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import emberstate as es
from tests.spark.streams import START

Event = tuple[str, datetime, int]


def events(count: int, seed: int = 1, keys: int = 20) -> list[Event]:
    """Events in order of time, a second or eleven apart."""
    chance = random.Random(seed)
    moments = itertools.accumulate(chance.choice((1, 1, 1, 11)) for _ in range(count))
    return [(f"k{chance.randrange(keys)}", START + timedelta(seconds=n), chance.randrange(5)) for n in moments]


class Totals(es.KeyedProcessFunction):
    """Adds up, key by key, and counts by value: every row comes out with what it makes."""

    total = es.value_state(int, default=0)
    seen = es.map_state(int, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        self.total.update(self.total.value() + row.value)
        self.seen[row.value] = self.seen.get(row.value, 0) + 1
        yield row.key, self.total.value(), self.seen[row.value]


TOTALS = "key string, total bigint, seen bigint"


def totals(events: Iterable[Event]) -> list[tuple[str, int, int]]:
    """What `Totals` gives for rows that come in this order."""
    sums: Counter[str] = Counter()
    seen: Counter[tuple[str, int]] = Counter()
    out = []
    for key, _, value in events:
        sums[key] += value
        seen[key, value] += 1
        out.append((key, sums[key], seen[key, value]))
    return out


class Bursts(es.KeyedProcessFunction):
    """Rows of a key with less than ten seconds between them are a burst; it is told when it has ended."""

    first: Any = es.value_state(datetime)
    last: Any = es.value_state(datetime)
    values = es.list_state(int)

    def process_element(self, row: Any, ctx: Any) -> None:
        if self.first.value() is None:
            self.first.update(row.ts)
        else:
            ctx.timers.delete_event_time("end", self.last.value() + GAP)
        self.last.update(row.ts)
        self.values.add(row.value)
        ctx.timers.register_event_time("end", row.ts + GAP)

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[str, datetime, datetime, int]]:
        yield ctx.key, self.first.value(), self.last.value(), sum(self.values.get())
        self.first.clear()
        self.last.clear()
        self.values.clear()


GAP = timedelta(seconds=10)
BURSTS = "key string, first timestamp, last timestamp, total bigint"


def bursts(events: Iterable[Event]) -> list[tuple[str, datetime, datetime, int]]:
    """The bursts in all events, in order of their keys."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events, key=lambda one: one[1]):
        by_key[event[0]].append(event)
    out = []
    for key, rows in sorted(by_key.items()):
        cuts = [0, *(n for n in range(1, len(rows)) if rows[n][1] - rows[n - 1][1] >= GAP), len(rows)]
        for low, high in itertools.pairwise(cuts):
            part = rows[low:high]
            out.append((key, part[0][1], part[-1][1], sum(row[2] for row in part)))
    return out


class Marked(Totals):
    """`Totals`, with a name for every row that no other run of the function would give it."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        for key, total, seen in super().process_element(row, ctx):
            yield key, total, seen, str(uuid.uuid4())


MARKED = f"{TOTALS}, mark string"


class Sabotaged(Totals):
    """`Totals`, with some values that make something die or fail, once each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        if row.value in SABOTAGE:
            mark = self.folder / f"{row.key}-{row.value}-{row.ts.timestamp()}"
            if not mark.exists():
                mark.touch()
                SABOTAGE[row.value]()
        yield from super().process_element(row, ctx)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail() -> None:
    raise OSError("this once")


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang() -> None:
    time.sleep(10**6)


SABOTAGE = {95: _stop, 96: _hang, 97: _die, 98: _fail}


class Waiting(Totals):
    """`Totals`, which waits while a file is there, and says so."""

    def __init__(self, gate: Path, entered: Path) -> None:
        self.gate, self.entered = gate, entered

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        while self.gate.exists():
            self.entered.touch()
            time.sleep(0.01)
        yield from super().process_element(row, ctx)
