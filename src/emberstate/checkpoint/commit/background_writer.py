"""`BackgroundWriter`: rewrites a slot's chain on a thread of its own while the slot goes on.

At most one rewrite runs at a time. It reads a snapshot that belongs to it, so it never waits for the owner of
the state, nor the owner for it: what both need is the interpreter's lock, which is taken in short slices.

A rewrite that fails changes nothing: the chain it would have shortened is still there. The error is raised
once, where the owner asks for the result, and the coordinator may order another.

Thread safety: `begin`, `result`, `wait` and `close` are called by the owner's thread; the rest runs on the
writer's thread, which touches nothing but the snapshot, the storage and `_outcome`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final, Literal

from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.manifest.chain import Rewrite, RewriteOrder
from emberstate.checkpoint.manifest.layout import new_id, state_path
from emberstate.checkpoint.manifest.model import StateFile
from emberstate.checkpoint.manifest.open_files import open_state_file, store_file
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.errors import RestoreRefusedError
from emberstate.keygroups import KeyGroupRange, range_for_slot
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.storage.interface import Storage

#: About how large a base file gets before another is begun: what is in memory at once.
BASE_FILE_BYTES: Final = 64 * 1024 * 1024

#: While a rewrite runs, threads take turns this often (seconds): an operation of the owner's waits about so long.
SWITCH_INTERVAL: Final = 0.0005


@dataclasses.dataclass(frozen=True, slots=True)
class BackgroundStatistics:
    """What a writer has done."""

    begun: int
    finished: int
    failed: int
    bytes_written: int
    #: How long the last one that finished took.
    last_micros: int


class _Cancelled(Exception):
    """The writer was closed."""


class BackgroundWriter:
    """Writes bases and merged deltas for one slot."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._order: RewriteOrder | None = None
        self._thread: threading.Thread | None = None
        self._outcome: Rewrite | BaseException | None = None
        self._cancelled = threading.Event()
        self._begun = self._finished = self._failed = self._bytes = self._last_micros = 0

    @property
    def order(self) -> RewriteOrder | None:
        """What is being written, or was and has not been fetched."""
        return self._order

    def begin(
        self, order: RewriteOrder, backend: KeyedStateBackend, snapshot: KeyedStateSnapshot, incarnation: int
    ) -> None:
        """Begin to fulfil an order. The snapshot is released by the writer, whatever happens."""
        if self._order is not None:
            snapshot.release()
            raise RuntimeError(f"rewrite {self._order.id} has not ended: ask for its result first")
        self._order, self._outcome = order, None
        self._begun += 1
        self._thread = threading.Thread(
            target=self._run, args=(order, backend, snapshot, incarnation), name="emberstate-rewrite", daemon=True
        )
        try:
            self._thread.start()
        except BaseException:
            self._order = self._thread = None
            snapshot.release()
            raise

    def result(self) -> Rewrite | None:
        """The result, once; None while there is none. Raises, once, what the rewrite failed with."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread.join()
        outcome, self._thread, self._order, self._outcome = self._outcome, None, None, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def wait(self, seconds: float) -> bool:
        """Wait until nothing runs; False if it took longer."""
        if self._thread is not None:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        return True

    def close(self) -> None:
        """End what runs, at its next part, and forget it. What it has written is not referred to by anything."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
        self._order = self._thread = self._outcome = None

    def statistics(self) -> BackgroundStatistics:
        """What was done so far."""
        return BackgroundStatistics(self._begun, self._finished, self._failed, self._bytes, self._last_micros)

    # -- on the writer's thread -----------------------------------------------------------------------------

    def _run(
        self, order: RewriteOrder, backend: KeyedStateBackend, snapshot: KeyedStateSnapshot, incarnation: int
    ) -> None:
        begun = time.perf_counter_ns()
        try:
            with snapshot, taking_turns():
                self._outcome = self._write(order, backend, snapshot, incarnation)
            self._last_micros = (time.perf_counter_ns() - begun) // 1000
            self._finished += 1
        except BaseException as error:  # it is raised where the result is asked for
            self._failed += 1
            self._outcome = error

    def _write(
        self, order: RewriteOrder, backend: KeyedStateBackend, snapshot: KeyedStateSnapshot, incarnation: int
    ) -> Rewrite:
        if order.merge:
            # Deltas between which a state was declared differently cannot be one; a base replaces all of them.
            with contextlib.suppress(RestoreRefusedError):
                merged = merge_deltas([self._part(file) for file in order.merge])
                groups = KeyGroupRange(*order.merge[0].groups)
                file = self._store(order, "delta", groups, [merged.data], merged.seal, incarnation)
                return Rewrite.of(order.id, order.merge, [file])
        files = [self._write_base(order, backend, snapshot, groups, incarnation) for groups in _parts(order)]
        return Rewrite.of(order.id, order.chain.files, files)

    def _part(self, file: StateFile) -> FileSlice:
        return FileSlice(open_state_file(self._storage, file), file.key_groups, file.decisions)

    def _write_base(
        self,
        order: RewriteOrder,
        backend: KeyedStateBackend,
        snapshot: KeyedStateSnapshot,
        groups: KeyGroupRange,
        incarnation: int,
    ) -> StateFile:
        writer = BaseWriter(backend, snapshot, groups)
        parts = []
        for part in writer:
            self._check_wanted()
            parts.append(part)
        return self._store(order, "base", groups, parts, writer.seal, incarnation)

    def _store(
        self,
        order: RewriteOrder,
        kind: Literal["base", "delta"],
        groups: KeyGroupRange,
        parts: list[bytes],
        seal: str,
        incarnation: int,
    ) -> StateFile:
        # The order's id is in the name, so that the collector knows what is unfinished and leaves it alone.
        ident = f"{order.id}-{new_id()}"
        path = state_path(incarnation, ident)
        self._check_wanted()
        ref = store_file(self._storage, path, parts)
        self._bytes += ref.size
        return StateFile(ident, kind, (groups.start, groups.end), ref, seal, order.number)

    def _check_wanted(self) -> None:
        if self._cancelled.is_set():
            raise _Cancelled


def _parts(order: RewriteOrder) -> list[KeyGroupRange]:
    """The slot's key groups in so many parts that none should give a file much larger than wanted."""
    groups = order.chain.key_groups
    size = sum(file.place.size for file in order.chain.files)
    count = max(1, min(len(groups), -(-size // BASE_FILE_BYTES)))
    parts = [range_for_slot(len(groups), count, part) for part in range(count)]
    return [KeyGroupRange(groups.start + part.start, groups.start + part.end) for part in parts]


_turns = threading.Lock()
_turn_takers: list[float] = []  # the intervals that were found, guarded by _turns


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Let threads take turns more often, until the last who asked for it is done."""
    with _turns:
        _turn_takers.append(sys.getswitchinterval())
        sys.setswitchinterval(min(SWITCH_INTERVAL, _turn_takers[0]))
    try:
        yield
    finally:
        with _turns:
            usual = _turn_takers[0]
            _turn_takers.pop()
            if not _turn_takers:
                sys.setswitchinterval(usual)
