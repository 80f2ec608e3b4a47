# cython: boundscheck=False, wraparound=False
"""`PairAccess`: reading and writing single pairs, with the log of what was touched since the newest snapshot.

The part of a `RocksDBStore` that every operation of a state uses, in a module of its own so that it can be compiled:
it knows only three functions of rocksdict.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import StorageError

#: Memory of a key in the log beside its bytes: the object, and its share of the set.
KEY_OVERHEAD = 33 + 64


class LogKeeper(Protocol):
    """Maintains the logs of all points: a `RocksDBStore`."""

    def settle(self) -> None:
        """Hand the logs of released points to older ones."""

    def spill(self) -> None:
        """Move the log's memory to disk."""

    def failed(self, what: str, error: Exception) -> StorageError:
        """Return the error to raise when rocksdict raised."""


@cython.final
@cython.cclass
class PairAccess:
    """Pairs of bytes, by their keys.

    >>> pairs: dict[bytes, bytes] = {}
    >>> access = PairAccess(pairs.get, pairs.__setitem__, pairs.pop, 1000, None)
    >>> access.put(b"a", b"1")
    >>> access.touched = set()
    >>> access.put(b"b", b"2")
    >>> access.get(b"a"), access.touched
    (b'1', {b'b'})
    """

    __slots__ = (
        "_delete",
        "_get",
        "_keeper",
        "_put",
        "generation",
        "sequence",
        "touched",
        "touched_bytes",
        "touched_limit",
        "unsettled",
        "writes",
    )

    _get: Callable[[bytes], Any]
    _put: Callable[[bytes, bytes], Any]
    _delete: Callable[[bytes], Any]
    _keeper: Any
    generation: int
    sequence: int
    touched: set[bytes] | None
    touched_bytes: int
    touched_limit: int
    unsettled: bool
    writes: int

    def __init__(
        self,
        get: Callable[[bytes], Any],
        put: Callable[[bytes, bytes], Any],
        delete: Callable[[bytes], Any],
        touched_limit: int,
        keeper: LogKeeper | None,
    ) -> None:
        """Access pairs by these functions; `touched_limit` is how many bytes of the log may be in memory."""
        self._get = get
        self._put = put
        self._delete = delete
        self._keeper = keeper
        #: Counts roll-backs.
        self.generation = 0
        #: Grows by one before every use, and orders the elements of lists.
        self.sequence = 0
        #: The keys logged in memory since the newest live point; None while there is none.
        self.touched = None
        #: Memory of the logs.
        self.touched_bytes = 0
        self.touched_limit = touched_limit
        #: Whether a released point still has a log of its own.
        self.unsettled = False
        #: Grows with every write, so that a count made earlier is known to hold or not.
        self.writes = 0

    def get(self, raw: bytes) -> Any:
        """The value of a key, or None."""
        try:
            return self._get(raw)
        except Exception as error:  # rocksdict raises no others
            raise self._keeper.failed("read", error) from error

    def put(self, raw: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self.writes += 1
        if self.touched is not None and raw not in self.touched:
            self.touch(raw)
        try:
            self._put(raw, value)
        except Exception as error:
            raise self._keeper.failed("written", error) from error

    def delete(self, raw: bytes) -> None:
        """Remove a key, if it exists."""
        self.writes += 1
        if self.touched is not None and raw not in self.touched:
            self.touch(raw)
        try:
            self._delete(raw)
        except Exception as error:
            raise self._keeper.failed("written", error) from error

    def append(self, prefix: bytes, value: bytes) -> None:
        """Add a pair that sorts after all others with this prefix."""
        self.sequence += 1
        self.put(prefix + self.sequence.to_bytes(8, "big"), value)

    def touch(self, raw: bytes) -> None:
        """Log a key that is not in the newest log's memory."""
        if self.unsettled:
            self._keeper.settle()
        if self.touched is None:
            return
        self.touched.add(raw)
        self.touched_bytes += len(raw) + KEY_OVERHEAD
        if self.touched_bytes > self.touched_limit:
            self._keeper.spill()

    def disconnect(self) -> None:
        """Drop the functions; any access raises from here on."""
        self._get = self._put = self._delete = _closed


def _closed(*arguments: Any) -> Any:
    raise ValueError("the store is closed")
