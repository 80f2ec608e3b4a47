"""Reads one `CopyOnWriteStateMap` as a snapshot saw it, from any thread, while the owner changes the map.

A bucket's head as of the snapshot is its before-image in the oldest image that has one, else the table's head. The
order matters: the writer saves before it changes, so the reader reads the table first and the images second. It
collects a page of heads at a time under the registry's lock, so that no release moves images meanwhile, and then walks
the chains without the lock: an entry that a live snapshot reaches does not change.

While the map was growing the snapshot spans three regions: primary [rehash_index, capacity), rehash
[0, rehash_index) and rehash [capacity, capacity + rehash_index).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from types import TracebackType
from typing import Any

from emberstate.heap.map.before_images import MapImage
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.geometry import PAGE_MASK, PAGE_SHIFT, SHARD_SHIFT
from emberstate.heap.map.interface import as_pair
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshots import SnapshotPoint


class CopyOnWriteStateMapSnapshot:
    """A map at a point in time: `get`, `in`, `len`, iteration (key, namespace, state). A context manager.

    >>> from emberstate.heap.map.value_kind import IMMUTABLE
    >>> states = CopyOnWriteStateMap(IMMUTABLE)
    >>> states.put("a", "ns", 1)
    >>> with states.snapshot() as before:
    ...     states.remove("a", "ns")
    ...     list(before), len(before), ("a", "ns") in before
    True
    ([('a', 'ns', 1)], 1, True)
    """

    __slots__ = ("_map", "point")

    def __init__(self, map: CopyOnWriteStateMap, point: SnapshotPoint) -> None:
        self._map = map
        #: The snapshot of the whole registry.
        self.point = point

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return a view of the state as it was, or None."""
        entry = self._find(key, namespace)
        return None if entry is None else self._map.kind.view(entry.state, self.point)

    def __contains__(self, pair: object) -> bool:
        return self._find(*as_pair(pair)) is not None

    def __len__(self) -> int:
        return self._tables()[3]

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        kind = self._map.kind
        for entry in self.entries():
            yield entry.key, entry.namespace, kind.view(entry.state, self.point)

    def entries(self) -> Iterator[StateMapEntry]:
        """Iterate over the entries themselves, which the caller must not change."""
        primary, rehash, rehash_index, _ = self._tables()
        yield from self._region(primary, rehash_index, primary.capacity)
        if rehash is not None:
            yield from self._region(rehash, 0, rehash_index)
            yield from self._region(rehash, primary.capacity, primary.capacity + rehash_index)

    def release(self) -> None:
        """Release the snapshot, from any thread."""
        self.point.release()

    def __enter__(self) -> CopyOnWriteStateMapSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def _tables(self) -> tuple[PageTable, PageTable | None, int, int]:
        """Return tables, `rehash_index` and size as they were."""
        map = self._map
        with self.point.registry.lock:
            self.point.check_live()
            if map.birth >= self.point.version:
                return PageTable(4, map.birth), None, 0, 0
            live = (map.primary, map.rehash, map.rehash_index, map.size)
            # Read after the live fields: a map makes its image before it changes them.
            images = map_images_since(map, self.point.version)
            if not images:
                return live
            image = images[0]
            return image.primary, image.rehash, image.rehash_index, image.size

    def _region(self, table: PageTable, start: int, stop: int) -> Iterator[StateMapEntry]:
        while start < stop:
            end = min(stop, (start | PAGE_MASK) + 1)
            for head in self._heads(table, start, end):
                entry: StateMapEntry | None = head
                while entry is not None:
                    yield entry
                    entry = entry.next
            start = end

    def _heads(self, table: PageTable, start: int, stop: int) -> list[StateMapEntry]:
        """Return the heads of buckets [start, stop), all of one page, as they were."""
        number = start >> PAGE_SHIFT
        with self.point.registry.lock:
            self.point.check_live()
            page = table.pages[number]
            low = start & PAGE_MASK
            heads: list[StateMapEntry | None] = [None] * (stop - start)
            if page is not None:
                heads = page[low : low + stop - start]
            for image in reversed(map_images_since(self._map, self.point.version)):
                for side in image.sides:
                    if side.table is table:
                        shard = side.shards[start >> SHARD_SHIFT]
                        if shard is None:
                            continue
                        if len(shard) < stop - start:
                            # Copied first: the owner may save another one meanwhile.
                            for bucket, head in shard.copy().items():
                                if start <= bucket < stop:
                                    heads[bucket - start] = head
                        else:
                            for bucket in range(start, stop):
                                if bucket in shard:
                                    heads[bucket - start] = shard[bucket]
        return [head for head in heads if head is not None]

    def _find(self, key: Hashable, namespace: Hashable) -> StateMapEntry | None:
        primary, rehash, rehash_index, _ = self._tables()
        hash = self._map.pair_hash(key, namespace)
        table, bucket = primary, hash & (primary.capacity - 1)
        if rehash is not None and bucket < rehash_index:
            table, bucket = rehash, hash & (rehash.capacity - 1)
        for head in self._heads(table, bucket, bucket + 1):
            entry: StateMapEntry | None = head
            while entry is not None:
                if entry.hash == hash and entry.key == key and entry.namespace == namespace:
                    return entry
                entry = entry.next
        return None


def map_images_since(map: CopyOnWriteStateMap, version: int) -> list[MapImage]:
    """Return the images that a snapshot of `version` reads through, oldest first; for any thread, under the lock."""
    images = []
    image = map.image
    while image is not None and image.version >= version:
        images.append(image)
        image = image.older
    images.reverse()
    return images
