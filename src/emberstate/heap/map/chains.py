"""Look-up of an entry in its bucket's chain; `chains.pxd` has the C forms, which count no references.

At a million entries a look-up costs a handful of cache misses and little else; these lines decide how many. `==` and
the hash of a key that is neither str nor int may run user code. They are called through the registry, which rejects
changes meanwhile (`SnapshotRegistry.busy`): a change could free an entry that the look-up has only borrowed.

Thread safety: the owner's thread.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.geometry import ABSENT_PAIR, OVERWRITTEN, PAGE_MASK, PAGE_SHIFT, SHARED_ENTRY
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshots import SnapshotRegistry


def same(registry: SnapshotRegistry, one: Any, other: Any) -> bool:
    """Return whether two keys, or two namespaces, are equal."""
    return one is other or registry.same(one, other)


def hash_of(registry: SnapshotRegistry, value: Hashable) -> int:
    """Return the hash of a key or a namespace."""
    return registry.hash_of(value)


def entry_in(
    registry: SnapshotRegistry, table: PageTable, bucket: int, hash: int, key: Hashable, namespace: Hashable
) -> StateMapEntry | None:
    """Return the entry of a pair in a bucket's chain, or None."""
    page = table.pages[bucket >> PAGE_SHIFT]
    entry = None if page is None else page[bucket & PAGE_MASK]
    while entry is not None:
        if (
            entry.hash == hash
            and same(registry, entry.key, key)
            and same(registry, entry.namespace, namespace)
        ):
            return entry
        entry = entry.next
    return None


def state_in(
    registry: SnapshotRegistry, table: PageTable, bucket: int, hash: int, key: Hashable, namespace: Hashable
) -> Any:
    """Return the state of a pair in a bucket's chain, or None."""
    entry = entry_in(registry, table, bucket, hash, key, namespace)
    return None if entry is None else entry.state


def overwrite_in(
    registry: SnapshotRegistry,
    table: PageTable,
    bucket: int,
    hash: int,
    key: Hashable,
    namespace: Hashable,
    state: Any,
) -> int:
    """Set the state of a pair whose entry was already changed in this epoch: nothing is to be noted or saved.

    Returns OVERWRITTEN; ABSENT_PAIR if there is no entry; SHARED_ENTRY, having changed nothing, in all other cases.
    """
    entry = entry_in(registry, table, bucket, hash, key, namespace)
    if entry is None:
        return ABSENT_PAIR
    if entry.state_version != registry.version or entry.entry_version < registry.required:
        return SHARED_ENTRY
    if registry.busy:
        registry.refuse_change()
    entry.state = state
    return OVERWRITTEN


def prefetch(table: PageTable, bucket: int) -> int:
    """Prefetch the head of a bucket into the cache; interpreted, a no-op."""
    return 0
