# cython: boundscheck=False, wraparound=False
"""Rolls a `CopyOnWriteStateMap` back to a snapshot: before-images become heads again.

The cost is proportional to what was touched. For newer live snapshots, which stay readable, a roll-back is a change
like any other: it saves what it overwrites in the newest image first, and logs it there.

Thread safety: the owner's thread, under the registry's lock.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.heap.map.before_images import BeforeImages, MapImage
from emberstate.heap.map.buckets import CopyOnWriteBuckets
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshots import SnapshotPoint
from emberstate.state.changes import ABSENT

if not cython.compiled:  # compiled, they are C functions
    from emberstate.heap.map.buckets import head_of, set_head

_EMPTY_CAPACITY = 4


def roll_back_map(map: CopyOnWriteBuckets, snapshot: SnapshotPoint) -> None:
    """Roll `map`, which changed since `snapshot`, back to it."""
    map.enter_epoch()
    images: list[MapImage] = map.images_since(snapshot.version)
    newest: MapImage = images[len(images) - 1]
    if newest.version > snapshot.version:
        _log(map, images)
    else:
        newest.log.clear()
        newest.repeats = False
    if map.birth >= snapshot.version:
        map.primary = PageTable(_EMPTY_CAPACITY, map.registry.version)
        map.rehash = None
        map.rehash_index = 0
        map.size = 0
    else:
        for image in reversed(images):  # the oldest last: it wins
            for side in image.sides:
                _put_back(side, newest)
        first: MapImage = images[0]
        map.primary = first.primary
        map.rehash = first.rehash
        map.rehash_index = first.rehash_index
        map.size = first.size
    map.threshold = (map.primary if map.rehash is None else map.rehash).capacity // 4 * 3
    map.chores = map.rehash is not None or len(map.retired) > 0
    map.modifications += 1  # the next change, in a new epoch, looks up the sides


def _log(map: CopyOnWriteBuckets, images: list[MapImage]) -> None:
    """Log in the newest image the pairs that are about to change and are missing there, with their current states."""
    newest: MapImage = images[len(images) - 1]
    known: set[tuple[Any, Any]] = {(entry.key, entry.namespace) for entry in newest.log[::2]}
    for image in images[: len(images) - 1]:
        for entry in image.log[::2]:
            pair = (entry.key, entry.namespace)
            if pair not in known:
                known.add(pair)
                _log_one(map, newest, entry)
    newest.repeats = True  # the entries put back are logged again when they change


def _log_one(map: CopyOnWriteBuckets, newest: MapImage, entry: StateMapEntry) -> None:
    live: StateMapEntry | None = map.find(entry.hash, entry.key, entry.namespace)
    newest.log.append(entry)
    newest.log.append(ABSENT if live is None else live.state)


def _put_back(side: BeforeImages, newest: MapImage) -> None:
    """Make every before-image of one table its bucket's head again."""
    table: PageTable = side.table
    kept: BeforeImages | None = newest.side_of(table)
    bucket: cython.Py_ssize_t
    for shard in side.shards:
        if shard is None:
            continue
        for number, head in shard.items():
            bucket = number
            if kept is not None and kept is not side:
                kept.save(bucket, head_of(table, bucket))
            set_head(table, bucket, head)
