"""Looking an entry up in its bucket's chain; `chains.pxd` has the C forms, which count no references on the way.

At a million entries a lookup is a handful of cache misses and little else; these are the lines that decide how many.
`==` may run a user's code, which must not change the map: an entry that is only borrowed would be gone.

Thread safety: the owner's thread.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from emberstate.heap.geometry import ABSENT_PAIR, OVERWRITTEN, PAGE_MASK, PAGE_SHIFT, SHARED_ENTRY
from emberstate.heap.page_table import PageTable
from emberstate.heap.state_map_entry import StateMapEntry


def entry_in(
    table: PageTable, bucket: int, hash: int, key: Hashable, namespace: Hashable
) -> StateMapEntry | None:
    """The entry of a pair in a bucket's chain, or None."""
    page = table.pages[bucket >> PAGE_SHIFT]
    entry = None if page is None else page[bucket & PAGE_MASK]
    while entry is not None:
        if (
            entry.hash == hash
            and (entry.key is key or entry.key == key)
            and (entry.namespace is namespace or entry.namespace == namespace)
        ):
            return entry
        entry = entry.next
    return None


def state_in(table: PageTable, bucket: int, hash: int, key: Hashable, namespace: Hashable) -> Any:
    """The state of a pair in a bucket's chain, or None."""
    entry = entry_in(table, bucket, hash, key, namespace)
    return None if entry is None else entry.state


def overwrite_in(
    table: PageTable,
    bucket: int,
    hash: int,
    key: Hashable,
    namespace: Hashable,
    state: Any,
    version: int,
    required: int,
) -> int:
    """Set the state of a pair whose entry was changed in this epoch already, so that there is nothing to note or save.

    Returns OVERWRITTEN; ABSENT_PAIR if there is no entry; SHARED_ENTRY, having done nothing, if it is not as easy.
    """
    entry = entry_in(table, bucket, hash, key, namespace)
    if entry is None:
        return ABSENT_PAIR
    if entry.state_version != version or entry.entry_version < required:
        return SHARED_ENTRY
    entry.state = state
    return OVERWRITTEN


def prefetch(table: PageTable, bucket: int) -> int:
    """Have the first entry of a bucket brought into the cache; interpreted, nothing."""
    return 0
