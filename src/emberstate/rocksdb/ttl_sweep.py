"""Sweeps over the states of a RocksDB backend that remove what has expired; see `state.ttl.clean_up`.

A sweep walks over the pairs of a state in the order of their keys. Each step opens an iterator of its own where the
last one stopped, so rows and roll-backs may come between two steps and nothing old is pinned meanwhile. Of a value
only the stamp is read. An expired pair is deleted like any other: logged, in the next delta, undone by a roll-back.

A delta that removes elements of a list contains the whole list anew. So a long list is counted first, step by step,
and its expired elements are deleted at once if they are at least half of it. Until then they stay, invisible.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from typing import Final

from emberstate.rocksdb.raw_keys import entry_of
from emberstate.rocksdb.state_table import LIST, RocksDBStateTable, stamp_of
from emberstate.state.ttl.clean_up import Sweep, SweptPart, TtlSweep
from emberstate.state.ttl.config import TtlConfig

#: Pairs looked at per step; a list up to this length is cleaned even if less than half of it has expired.
PAIRS: Final = 64


class RocksDBTtlSweep(TtlSweep):
    """Makes the sweeps of one backend."""

    __slots__ = ()

    def sweep(self, table: RocksDBStateTable, ttl: TtlConfig) -> Sweep:
        """Walk over all pairs of one state; the walk ends at once while its time is not known."""
        return self._lists(table, ttl) if table.shape == LIST else self._pairs(table, ttl)

    def _pairs(self, table: RocksDBStateTable, ttl: TtlConfig) -> Sweep:
        """Walk over values, or over the user values of maps."""
        position: bytes | None = table.prefix
        while position is not None and (horizon := self._horizon(ttl)) is not None:
            part, position = _part(table, position)
            expired = [raw for raw, stamp in part if stamp <= horizon]
            for raw in expired:
                table.remove_pair(raw)
            yield SweptPart(1 + len(part), len(expired))

    def _lists(self, table: RocksDBStateTable, ttl: TtlConfig) -> Sweep:
        """Walk over lists; the counts of the list that a step ends in are kept for the next step."""
        position: bytes | None = table.prefix
        entry: bytes | None = None
        length = expired = 0
        while position is not None and (horizon := self._horizon(ttl)) is not None:
            part, position = _part(table, position)
            removed = 0
            for raw, stamp in part:
                if entry is None or not raw.startswith(entry):
                    removed += _tidy_list(table, entry, length, expired, horizon)
                    entry, length, expired = entry_of(raw), 0, 0
                length += 1
                expired += stamp <= horizon
            if position is None:
                removed += _tidy_list(table, entry, length, expired, horizon)
            yield SweptPart(1 + len(part), removed)


def _part(table: RocksDBStateTable, position: bytes) -> tuple[list[tuple[bytes, int]], bytes | None]:
    """(raw key, stamp) of some pairs from `position` on, and the position of the next; None after the last."""
    cursor = table.tables.store.cursor(table.prefix)
    cursor.seek(position)
    part: list[tuple[bytes, int]] = []
    raw = cursor.key()
    while raw is not None:
        if len(part) == PAIRS:
            return part, raw
        part.append((raw, stamp_of(cursor.value())))
        cursor.advance()
        raw = cursor.key()
    cursor.check()
    return part, None


def _tidy_list(table: RocksDBStateTable, entry: bytes | None, length: int, expired: int, horizon: int) -> int:
    """Delete the expired elements of a counted list, if they are enough; returns how many were deleted."""
    if entry is None or not expired or (length > PAIRS and 2 * expired < length):
        return 0
    gone = [raw for raw, data in table.tables.store.scan(entry) if stamp_of(data) <= horizon]
    for raw in gone:
        table.remove_pair(raw)
    return len(gone)
