"""`Measurements`: counts the state of a location in the background, for the pages that show entries and bytes.

Counting reads all state. A small location is counted by itself, and again once a result is old; a large one when
somebody asks. One count at a time, in one thread per location, so that a page beside a job takes little from it.

Thread safety: any thread. `_lock` guards `_running`, `_result` and `_problem`.
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Final

from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.sizes import stored_bytes
from emberstate.checkpoint.read.usage import StateUsage, state_usage
from emberstate.clock import SystemClock
from emberstate.errors import EmberstateError
from emberstate.storage.interface import Storage

#: Bytes of state files that are counted without being asked.
SMALL: Final = 32 * 2**20
_LARGEST_KEYS: Final = 20
#: A result is old after so long, and after so many times what it took.
_OLD_MICROS: Final = 15 * 1_000_000
_OLD_FACTOR: Final = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Measured:
    """The state of a checkpoint, by operator."""

    manifest: Manifest
    usage: dict[str, StateUsage]
    #: When it was done, and what it took.
    at: int
    micros: int


@dataclasses.dataclass(frozen=True, slots=True)
class Measurement:
    """What is known now."""

    result: Measured | None
    running: bool
    #: Of the count that runs, from 0 to 1.
    done: float
    problem: str | None
    #: The stored size, which a count would read.
    to_read: int


class Measurements:
    """Counts of one location."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._running: threading.Thread | None = None
        self._result: Measured | None = None
        self._problem: str | None = None
        self._steps = self._total = 0  # written by the thread that counts; a stale number harms nobody

    def look(self, manifest: Manifest, asked: bool) -> Measurement:
        """Return what is known; start counting `manifest` if it is small or `asked` for, and the last count is old."""
        to_read = stored_bytes(manifest.operators)
        with self._lock:
            if self._running is None and (asked or to_read <= SMALL) and self._is_old(manifest, asked):
                self._problem = None
                self._steps, self._total = 0, 1
                self._running = threading.Thread(
                    target=self._count, args=(manifest,), name="emberstate-ui-count", daemon=True
                )
                self._running.start()
            done = min(1.0, self._steps / max(1, self._total))
            return Measurement(self._result, self._running is not None, done, self._problem, to_read)

    def _is_old(self, manifest: Manifest, asked: bool) -> bool:
        result = self._result
        if result is None:
            return self._problem is None or asked
        if result.manifest.id == manifest.id:
            return False
        age = self._clock.now_micros() - result.at
        return asked or age > max(_OLD_MICROS, _OLD_FACTOR * result.micros)

    def _count(self, manifest: Manifest) -> None:
        began = self._clock.now_micros()
        result, problem = self._result, None
        try:
            with CheckpointReader(self._storage, manifest) as reader:
                names = {name: [state.address for state in reader.states(name)] for name in reader.operators}
                groups = {operator.name: operator.max_parallelism for operator in manifest.operators}
                self._total = sum(len(states) * groups[name] for name, states in names.items())
                usage = {
                    name: state_usage(reader, name, states, _LARGEST_KEYS, self._tick) for name, states in names.items()
                }
            now = self._clock.now_micros()
            result = Measured(manifest, usage, now, now - began)
        except EmberstateError as error:
            problem = str(error)
        finally:
            with self._lock:
                self._running, self._result, self._problem = None, result, problem

    def _tick(self, steps: int) -> None:
        self._steps += steps
