"""One (key, namespace) → state mapping of a `CopyOnWriteStateMap`, and a link of its bucket's chain.

Two versions decide what must be copied (see `snapshots`): an entry older than the newest live snapshot is shared with
it and never changes; a state older than that is copied before it is handed out for change. Compiled, an entry has 64
bytes and is hidden from the cyclic collector: a million entries cause no collector pause. The price is that state must
be a tree: a value that refers back to the map that holds it is never freed.

Thread safety: only the map's owner makes and changes entries. Any thread may read an entry that a live snapshot
reaches, because it no longer changes.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython


@cython.freelist(256)
@cython.no_gc
@cython.final
@cython.cclass
class StateMapEntry:
    """A link of a bucket's chain; newest first."""

    __slots__ = ("entry_version", "hash", "key", "namespace", "next", "state", "state_version")

    key: Any
    namespace: Any
    state: Any
    next: StateMapEntry | None
    hash: int
    entry_version: int
    state_version: int

    def __repr__(self) -> str:
        return (
            f"StateMapEntry({self.key!r}, {self.namespace!r}, {self.state!r}, "
            f"entry_version={self.entry_version}, state_version={self.state_version})"
        )


def new_entry(
    key: Any,
    namespace: Any,
    state: Any,
    next: StateMapEntry | None,
    hash: cython.uint,
    entry_version: cython.uint,
    state_version: cython.uint,
) -> StateMapEntry:
    """Make an entry; a function, because calling the class would box and unbox every number on the way."""
    entry: StateMapEntry = StateMapEntry.__new__(StateMapEntry)
    entry.key = key
    entry.namespace = namespace
    entry.state = state
    entry.next = next
    entry.hash = hash
    entry.entry_version = entry_version
    entry.state_version = state_version
    return entry
