"""`BackgroundWriter`: rewrites a slot's chain on its own thread while the slot works.

At most one rewrite runs at a time. It reads a snapshot of its own, so it never waits for the state's owner, nor the
owner for it; both take turns holding the interpreter's lock, in short slices.

A rewrite that fails changes nothing: the long chain is still there. `result` raises the error once, and the coordinator
may order another rewrite.

Thread safety: the owner's thread calls `begin`, `result`, `wait` and `close`; the rest runs on the writer's thread,
which touches only the snapshot, the storage, the counts and `_outcome`.
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

#: About how large a base file gets; it is in memory as a whole.
BASE_FILE_BYTES: Final = 64 * 1024 * 1024

#: While a rewrite runs, threads take turns this often (seconds); an operation of the owner waits about so long.
SWITCH_INTERVAL: Final = 0.0005


@dataclasses.dataclass(frozen=True, slots=True)
class BackgroundStatistics:
    """Counts of a writer."""

    begun: int
    finished: int
    failed: int
    bytes_written: int
    #: The duration of the last one that finished.
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
        """The order that is being fulfilled, or whose result was not fetched yet."""
        return self._order

    def begin(
        self, order: RewriteOrder, backend: KeyedStateBackend, snapshot: KeyedStateSnapshot, incarnation: int
    ) -> None:
        """Begin to fulfil an order. The writer releases the snapshot in any case."""
        if self._order is not None:
            snapshot.release()
            raise RuntimeError(f"rewrite {self._order.id} has not ended. Fetch its result first.")
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
        """Return the result once, None while there is none. Raises the rewrite's error once."""
        if self._thread is None or self._thread.is_alive():
            return None
        self._thread.join()
        outcome, self._thread, self._order, self._outcome = self._outcome, None, None, None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def wait(self, seconds: float) -> bool:
        """Wait until nothing runs; return False after `seconds`."""
        if self._thread is not None:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        return True

    def close(self) -> None:
        """Stop a running rewrite at its next part and drop it. Nothing refers to the files it has written."""
        self._cancelled.set()
        if self._thread is not None:
            self._thread.join()
        self._order = self._thread = self._outcome = None

    def statistics(self) -> BackgroundStatistics:
        """Return the counts so far."""
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
        except BaseException as error:  # `result` raises it
            self._failed += 1
            self._outcome = error

    def _write(
        self, order: RewriteOrder, backend: KeyedStateBackend, snapshot: KeyedStateSnapshot, incarnation: int
    ) -> Rewrite:
        if order.merge:
            # Deltas with different declarations of a state cannot be merged; a base replaces them all.
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
        # The name has the order's id, so that the collector keeps unfinished rewrites.
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
    """Split the slot's key groups so that no file should get much larger than `BASE_FILE_BYTES`."""
    groups = order.chain.key_groups
    size = sum(file.place.size for file in order.chain.files)
    count = max(1, min(len(groups), -(-size // BASE_FILE_BYTES)))
    parts = [range_for_slot(len(groups), count, part) for part in range(count)]
    return [KeyGroupRange(groups.start + part.start, groups.start + part.end) for part in parts]


_turns = threading.Lock()
_turn_takers: list[float] = []  # the intervals before each began, guarded by _turns


@contextlib.contextmanager
def taking_turns() -> Iterator[None]:
    """Let threads take turns more often, until the last caller leaves."""
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
