"""Checks the invariants of `buckets` for `CopyOnWriteStateMap.check_invariants`. O(all entries), owner's thread."""

from __future__ import annotations

from typing import Any

from emberstate.errors import InvariantError
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.geometry import PAGE_BUCKETS, PAGE_MASK, PAGE_SHIFT
from emberstate.heap.map.page_table import PageTable


def check_map(map: CopyOnWriteStateMap) -> None:
    """Raise `InvariantError` that names the first broken invariant and has the map's statistics."""
    try:
        _check_tables(map)
        _check_entries(map)
        _check_loans(map)
        _check_images(map)
        map.registry.check_invariants()
    except InvariantError as error:
        raise InvariantError(f"{error}; {map.statistics()}") from None


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantError(what)


def _check_tables(map: CopyOnWriteStateMap) -> None:
    primary, rehash = map.primary, map.rehash
    for table in (primary, rehash):
        if table is not None:
            capacity = table.capacity
            _require(capacity & (capacity - 1) == 0, f"capacity {capacity} is no power of two")
            _require(len(table.pages) == max(1, capacity >> PAGE_SHIFT), "a directory has the wrong length")
            for page in table.pages:
                _require(page is None or len(page) == min(capacity, PAGE_BUCKETS), "a page has a wrong size")
    if rehash is None:
        _require(map.rehash_index == 0, f"rehash_index is {map.rehash_index} though nothing is growing")
    else:
        _require(rehash.capacity == 2 * primary.capacity, "the rehash table is not twice the primary one")
        _require(map.rehash_index < primary.capacity, "growth has come to its end and was not ended")
        _require(rehash.reached >= map.rehash_index, "`reached` is behind rehash_index")


def _heads(table: PageTable, start: int, stop: int) -> list[tuple[int, StateMapEntry | None]]:
    heads = []
    for bucket in range(start, stop):
        page = table.pages[bucket >> PAGE_SHIFT]
        heads.append((bucket, None if page is None else page[bucket & PAGE_MASK]))
    return heads


def _check_entries(map: CopyOnWriteStateMap) -> None:
    capacity, index = map.primary.capacity, map.rehash_index
    regions = [(map.primary, index, capacity)]
    if map.rehash is not None:
        regions += [(map.rehash, 0, index), (map.rehash, capacity, capacity + index)]
    pairs: set[tuple[Any, Any]] = set()
    version = map.registry.version
    for table, start, stop in regions:
        for bucket, head in _heads(table, start, stop):
            entry = head
            while entry is not None:
                pair = (entry.key, entry.namespace)
                _require(pair not in pairs, f"{pair!r} is there twice")
                pairs.add(pair)
                _require(entry.hash == map.pair_hash(*pair), f"{pair!r} has another hash than its entry says")
                own = entry.hash & (table.capacity - 1)
                _require(own == bucket, f"{pair!r} is in bucket {bucket}, not in {own}")
                _require(entry.entry_version <= version, f"{pair!r} has an entry version from the future")
                _require(entry.state_version <= version, f"{pair!r} has a state version from the future")
                entry = entry.next
    _require(len(pairs) == len(map), f"{len(pairs)} entries found, size is {len(map)}")


def _check_loans(map: CopyOnWriteStateMap) -> None:
    if not map.kind.lends:
        _require(not map.loans, "there are loans, of values that cannot be lent")
        return
    lent = {id(entry) for entry in map.loans[::2]}
    for number in range(map.primary.capacity):
        for entry in map.cell(number, map.primary.capacity):
            if entry.state_version == map.registry.version:
                _require(id(entry) in lent, f"{entry!r} counts as lent and is not")
            else:
                _require(entry.state_version == 0, f"{entry!r} is neither lent nor sealed")
    if map.loans:
        known = any(lender is map for lender in map.registry.lenders)
        _require(known, "there are loans that nobody will seal")
    _require(2 * map.dead_loans <= len(map.loans), "more loans are dead than there are")


def _check_images(map: CopyOnWriteStateMap) -> None:
    live = {snapshot.version: snapshot for snapshot in map.registry.live}
    last = map.registry.version + 1
    image = map.image
    while image is not None:
        _require(image.version < last, f"image {image.version} stands behind image {last}")
        last = image.version
        _require(last in live, f"image of snapshot {last}, which is not live")
        known = any(image is other for other in live[last].images)
        _require(known, f"snapshot {last} does not know its image")
        for side in image.sides:
            _require(side.table.version < last, f"snapshot {last} has images of a table it cannot see")
            for shard in side.shards:
                for bucket, head in (shard or {}).items():
                    while head is not None:
                        own = head.hash & (side.table.capacity - 1)
                        _require(own == bucket, "a before-image is in a wrong bucket")
                        head = head.next
        image = image.older
