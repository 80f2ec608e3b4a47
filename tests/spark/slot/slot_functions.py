"""Functions that slots run in tests; a module of its own, for slots import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emberstate.runtime.functions.declared_states import broadcast_state, map_state, value_state
from emberstate.runtime.functions.function import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
)

COLUMNS = "key string, value bigint, command string"


class Adding(KeyedProcessFunction):
    """Sums values by key; some commands make it fail in one way or other."""

    total = value_state(int, default=0)
    seen = map_state(str, int)

    def __init__(self) -> None:
        self.calls = 0

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.calls += 1
        self.total.update(self.total.value() + row.value)
        self.seen[row.command] = self.seen.get(row.command, 0) + 1
        if row.command == "raise":
            self.refuse(row)
        elif row.command == "shout":
            raise ValueError("x" * (1 << 20))
        elif row.command == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif row.command == "exit":
            raise SystemExit(3)
        elif row.command == "wrong type":
            self.total.update("nothing to add")  # type: ignore[arg-type]
        elif row.command == "calls":
            yield "calls", self.calls
        elif row.command.startswith("hang at "):
            os.close(os.open(row.command.removeprefix("hang at "), os.O_CREAT))  # no frame of Python's below this one
            while True:
                time.sleep(60)
        elif row.command.startswith("wait for "):
            while not Path(row.command.removeprefix("wait for ")).exists():
                time.sleep(0.01)
        elif row.command == "fork" and os.fork() == 0:
            time.sleep(600)  # until it is killed
        yield row.key, self.total.value()

    def refuse(self, row: Any) -> None:
        """A frame more."""
        raise ZeroDivisionError(f"no more of {row.value}")


class Noting(KeyedBroadcastProcessFunction):
    """Adds up how many notes there are when rows come, and once more at the end of time."""

    total = value_state(int, default=0)
    notes = broadcast_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() + len(self.notes))
        ctx.timers.register_event_time("end", datetime(2100, 1, 1, tzinfo=UTC))
        yield row.key, self.total.value()

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        self.notes[row.note] = 1

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        yield f"{ctx.key} at the end", self.total.value()


class Both(KeyedCoProcessFunction):
    """Adds the values of the first input, takes off those of the second."""

    total = value_state(int, default=0)

    def process_element1(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() + row.value)
        yield row.key, self.total.value()

    def process_element2(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() - row.value)
        yield row.key, self.total.value()
