"""`StateChecksum`: a checksum of a backend's map states, independent of order, updated with every change.

Slots that hold the same state compare it. Equal state has equal checksums, whether it was kept in memory or restored:
values are hashed as they are stored, and a typed codec stores equal values as equal bytes. Pickle does not, so of a
pickled value only the user key counts.

The checksum of a state is the sum of its entries' hashes modulo 2**128. A change subtracts the old entry's hash and
adds the new one's, so the cost follows the changes.

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
        self._hashes: dict[str, dict[bytes, int]] = {}  # by state and user key
        self._totals: dict[str, int] = {}
        self._before: list[tuple[str, bytes, int]] = []  # the old hashes, since the last commit

    def apply(self, file: bytes) -> None:
        """Apply the rows of a delta; or of a base, if nothing was applied before."""
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
                else:  # PUT, the only other step of a map
                    self._set(name, user_key, _hash(user_key, b"" if pickled else value))

    def totals(self) -> dict[str, str]:
        """Return the checksum of every state that is not empty."""
        return {name: f"{self._totals[name]:032x}" for name, entries in self._hashes.items() if entries}

    def commit(self) -> None:
        """Make the applied changes permanent."""
        self._before.clear()

    def roll_back(self) -> None:
        """Undo the changes since the last commit."""
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
    """Return the hash of an entry, including the length of its user key; never 0."""
    parts = len(user_key).to_bytes(8, "little") + user_key + (b"" if value is None else b"\1" + value)
    return int.from_bytes(hashlib.blake2b(parts, digest_size=_BYTES).digest(), "little") or 1
