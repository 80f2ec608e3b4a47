"""`MapImage`: what one snapshot keeps of one map that has changed since.

Taking a snapshot copies nothing. The first change to a map after it makes a `MapImage`: references to the map's
tables, its `rehash_index` and size. From then on, before the first change to a bucket, the bucket's old head is saved
in the `BeforeImages` of its table. So an image holds what was touched and nothing else. It serves four purposes:

* *read*: a bucket's head is its before-image, else that of the next newer image …, else the table's head;
* *roll back*: before-images become heads again;
* *release*: the image is merged into the next older image of the same map (`absorb`), or dropped;
* *list changes*: `log` has each entry once, from its first change, with the state it had (or ABSENT).

Invariants: a before-image is saved before the bucket changes, and never overwritten. A table younger than the snapshot
has none, because the snapshot cannot see it. Shards bound the stall when a dict of before-images grows.

Thread safety: the map's owner saves without a lock. Chains of images change only under the registry's lock, which a
reader also holds while it collects one page (`snapshot_reader`).
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

if not cython.compiled:  # compiled, they are the C constants of geometry.pxd
    from emberstate.heap.map.geometry import SHARD_SHIFT

from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.page_table import PageTable

LOG_REPEATS_KEPT = 4096  # below this length a log with repeats is left as it is


class BeforeImages:
    """Old heads of one table's buckets: bucket → head, in shards of 65,536 buckets."""

    __slots__ = ("shards", "table")

    table: PageTable
    shards: list[dict[int, StateMapEntry | None] | None]

    def __init__(self, table: PageTable) -> None:
        self.table = table
        self.shards = [None] * ((table.capacity >> SHARD_SHIFT) + 1)

    def save(self, bucket: cython.Py_ssize_t, head: StateMapEntry | None) -> int:
        """Save `head` as the old head of `bucket`, unless an older one is saved already."""
        shards: list[dict[int, StateMapEntry | None] | None] = self.shards
        shard: dict[int, StateMapEntry | None] | None = shards[bucket >> SHARD_SHIFT]
        if shard is None:
            shard = {}
            shards[bucket >> SHARD_SHIFT] = shard
        shard.setdefault(bucket, head)
        return 0

    def absorb(self, newer: BeforeImages) -> None:
        """Take over the before-images of a newer image of the same table; those already here are older and stay."""
        shards = self.shards
        for number, theirs in enumerate(newer.shards):
            if theirs is None:
                continue
            mine = shards[number]
            if mine is None:
                shards[number] = theirs
            elif len(mine) < len(theirs):  # iterate over the smaller of the two
                theirs.update(mine)
                shards[number] = theirs
            else:
                for bucket, head in theirs.items():
                    mine.setdefault(bucket, head)

    def forget(self) -> None:
        """Drop all before-images; the calling thread frees them."""
        self.shards = [None] * len(self.shards)

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards if shard is not None)


class MapImage:
    """One map as one snapshot sees it: tables, size, before-images, and a log of changes since."""

    __slots__ = (
        "distinct", "log", "map", "older", "primary", "rehash", "rehash_index", "repeats", "sides", "size",
        "version",
    )

    map: Any
    version: int
    primary: PageTable
    rehash: PageTable | None
    rehash_index: int
    size: int
    sides: list[BeforeImages]
    log: list[Any]  # entry, state before; entry, state before; …
    distinct: int  # length of the log when repeats were last dropped
    repeats: bool  # the log may have a pair twice (the first counts), or an entry that is no longer live
    older: MapImage | None

    def __init__(
        self,
        map: Any,
        version: cython.uint,
        primary: PageTable,
        rehash: PageTable | None,
        rehash_index: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        older: MapImage | None,
    ) -> None:
        self.map = map
        self.version = version
        self.primary = primary
        self.rehash = rehash
        self.rehash_index = rehash_index
        self.size = size
        self.sides = []
        self.log = []
        self.distinct = 0
        self.repeats = False
        self.older = older

    def side_of(self, table: PageTable) -> BeforeImages | None:
        """Return the before-images of `table`, made on demand; None if the snapshot cannot see that table."""
        if table.version >= self.version:
            return None
        for side in self.sides:
            if side.table is table:
                return side
        side = BeforeImages(table)
        self.sides.append(side)
        return side

    def hand_to(self, version: cython.uint) -> None:
        """Become the image of an older snapshot, which may not see all of these tables."""
        self.version = version
        self.sides = [side for side in self.sides if side.table.version < version]

    def absorb(self, newer: MapImage) -> None:
        """Take over what `newer`, whose snapshot was released, keeps."""
        for theirs in newer.sides:
            if theirs.table.version < self.version:
                mine = self.side_of(theirs.table)
                assert mine is not None
                mine.absorb(theirs)
        self.log.extend(newer.log)
        self.repeats = True
        if len(self.log) > LOG_REPEATS_KEPT and len(self.log) > 2 * self.distinct:
            self.drop_repeats()

    def drop_repeats(self) -> None:
        """Keep the first record of each pair: a long snapshot takes over the logs of many short ones."""
        seen: set[tuple[Any, Any]] = set()
        kept: list[Any] = []
        for position in range(0, len(self.log), 2):
            entry: StateMapEntry = self.log[position]
            pair = (entry.key, entry.namespace)
            if pair not in seen:
                seen.add(pair)
                kept.append(entry)
                kept.append(self.log[position + 1])
        self.log = kept
        self.distinct = len(kept)

    def image_count(self) -> int:
        """Return how many buckets have a before-image here."""
        return sum(map(len, self.sides))
