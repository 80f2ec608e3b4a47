"""`StateChecksum`: a checksum of all that a backend's map states hold, whatever their order, kept change by change.

It is what slots compare that hold one state together: equal state gives equal checksums, whether it was kept in memory
or restored, since values are hashed as they are stored, and a typed codec stores equal values as equal bytes. Pickle
does not: of a pickled value only its user key counts.

Of each state it is the sum of its entries' hashes modulo 2**128. A change takes off the hash of what was there and adds
that of what is, so it costs what was changed.

Thread safety: one thread, the backend's owner.
"""

from __future__ import annotations

import hashlib
from typing import Final

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.codec.type_schema import PICKLE
from emberstate.state.changes import Op

_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * _BYTES
_REMOVED, _CLEARED = int(Op.REMOVED), int(Op.CLEARED)


class StateChecksum:
    """The checksum of each map state: `apply` state files, then `commit` what they changed or roll it back."""

    def __init__(self) -> None:
        self._hashes: dict[str, dict[bytes, int]] = {}  # by state and user key; nothing for what is not there
        self._totals: dict[str, int] = {}
        self._before: list[tuple[str, bytes, int]] = []  # since the last commit: what was there

    def apply(self, file: bytes) -> None:
        """Follow the rows of a delta; or those of a base, if there is nothing yet."""
        reader = StateFileReader.of_bytes(file)
        states = [(state.name, state.type is not None and state.type.kind == PICKLE) for state in reader.meta.states]
        for _, batch in reader.batches():
            columns = [batch.column(name).to_pylist() for name in ("state", "op", "user_key", "value")]
            for number, op, user_key, value in zip(*columns, strict=True):
                name, pickled = states[number]
                if op == _CLEARED:
                    for known in list(self._hashes.get(name, ())):
                        self._set(name, known, 0)
                elif op == _REMOVED:
                    self._set(name, user_key, 0)
                else:  # PUT: of maps there is nothing else
                    self._set(name, user_key, _hash(user_key, b"" if pickled else value))

    def totals(self) -> dict[str, str]:
        """The checksum of every state that holds anything."""
        return {name: f"{self._totals[name]:032x}" for name, entries in self._hashes.items() if entries}

    def commit(self) -> None:
        """Keep what was applied."""
        self._before.clear()

    def roll_back(self) -> None:
        """Be as at the last commit."""
        undone, self._before = self._before, []
        for name, user_key, before in reversed(undone):
            self._set(name, user_key, before)
        self._before.clear()

    def _set(self, name: str, user_key: bytes, new: int) -> None:
        entries = self._hashes.setdefault(name, {})
        old = entries.pop(user_key, 0)
        if new:
            entries[user_key] = new
        self._totals[name] = (self._totals.get(name, 0) - old + new) % _MODULUS
        self._before.append((name, user_key, old))


def _hash(user_key: bytes, value: bytes | None) -> int:
    """Of one entry: of its parts and where the first ends; never 0."""
    parts = len(user_key).to_bytes(8, "little") + user_key + (b"" if value is None else b"\1" + value)
    return int.from_bytes(hashlib.blake2b(parts, digest_size=_BYTES).digest(), "little") or 1
