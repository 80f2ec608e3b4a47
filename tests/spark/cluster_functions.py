"""What runs on the cluster of the tests; a module of its own, for workers and slots import it.

Some of it can be held: who comes to the point touches a file, and waits until another is there. So a test knows
that a process is where it is to be killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage

INPUT = "key string, value bigint, ts timestamp, command string"
TALLIES = "key string, team string, ts timestamp, seen bigint, total bigint, noise string"
RANKS = f"{TALLIES}, rank bigint"

#: Bytes of noise per row: a batch of ten thousand rows is too large to go through the driver.
NOISE = 120


def hold(point: Path) -> None:
    """Wait at a point, if it is one where to wait."""
    if point.with_suffix(".first").exists():
        with contextlib.suppress(FileExistsError):
            point.with_suffix(".taken").touch(exist_ok=False)
            _wait(point)
    elif point.with_suffix(".hold").exists():
        _wait(point)


def _wait(point: Path) -> None:
    point.with_suffix(f".{os.getpid()}.held").touch()
    while not point.with_suffix(".go").exists():
        time.sleep(0.01)


class Tally(KeyedProcessFunction):
    """Counts and sums by key."""

    total = value_state(int, default=0)
    commands = map_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        self.total.update(self.total.value() + row.value)
        self.commands["all"] = self.commands.get("all", 0) + 1
        if row.command:
            hold(Path(row.command))
        noise = os.urandom(NOISE).hex()  # what is delivered twice must have been computed once
        yield row.key, row.key[-1], row.ts, self.commands["all"], self.total.value(), noise


class Rank(KeyedProcessFunction):
    """Numbers the tallies of a team."""

    rank = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        self.rank.update(self.rank.value() + 1)
        yield row.key, row.team, row.ts, row.seen, row.total, row.noise, self.rank.value()


class HoldingBackend(FsStateBackend):
    """Who reads an output file in a task can be held at point `read`: while it is one, outputs are read in Python."""

    def __init__(self, root: Path, points: Path) -> None:
        self._points = points  # first: the class opens its storage
        super().__init__(root)

    def open_storage(self) -> Storage:
        return _DriversStorage(str(self.uri), self._points)

    def open_slot_storage(self) -> Storage:
        return _HoldingStorage(str(self.uri), self._points)


class _DriversStorage(LocalStorage):
    def __init__(self, root: str, points: Path) -> None:
        super().__init__(root)
        self._points = points

    @property
    def directory(self) -> str | None:
        return None if (self._points / "read").with_suffix(".hold").exists() else self._directory

    @directory.setter
    def directory(self, directory: str | None) -> None:
        self._directory = directory


class _HoldingStorage(LocalStorage):
    def __init__(self, root: str, points: Path) -> None:
        super().__init__(root)
        self._points = points

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if "output" in path:
            hold(self._points / "read")
        return super().read_range(path, offset, length)


@dataclasses.dataclass(frozen=True)
class HeldRows:
    """A function of `mapInArrow` that hands on rows, and can be held at a point."""

    point: Path

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hold(self.point)
            yield batch
