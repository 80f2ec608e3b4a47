"""`ColumnRows`: the rows of a column table, their arrays, and what snapshots keep of them.

A row has a key, a namespace and a key group, which stay the same for as long as the row number is in use, and what
changes: whether it is *alive* (has an entry), its stamp, and a value per field of the layout. A row that is removed is
dead; its number is freed when no image has it any more. A dead row that gets an entry again is the same row, so a key
and a namespace have one row at any time.

The copy rule (`heap.map.snapshots`): before a row whose version is below `registry.required` changes, it is saved in
the image of the newest snapshot. A row that is saved has the registry's version; images keep the version before,
which a roll-back brings back.

Row numbers that `rows_of` returned are valid until the next call of `numbers_of`.

Invariants
1.  Each row in use is alive, or in `dead`.
2.  `size` rows are alive.
3.  Rows that an image has are in use.

Thread safety: one owner thread changes the rows, under the registry's lock; any thread reads under that lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emberstate.errors import InvariantError
from emberstate.heap.columns.column_image import ColumnImage, oldest_first
from emberstate.heap.columns.key_index import KeyIndex
from emberstate.heap.columns.layout import Array, Column, ColumnLayout
from emberstate.heap.columns.namespace_numbers import NamespaceNumbers
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry

_LEAST_ROWS = 16
_NO_GROUP = -1


class ColumnRows:
    """Rows and their arrays; the registry treats it as a map."""

    __slots__ = (
        "alive", "buried_at", "columns", "dead", "epoch", "groups", "image", "index", "layout", "modifications",
        "namespaces", "registry", "saved", "scratch", "size", "stamps", "versions",
    )  # fmt: skip

    def __init__(self, layout: ColumnLayout, registry: SnapshotRegistry) -> None:
        self.layout = layout
        self.registry = registry
        self.index = KeyIndex()
        self.namespaces = NamespaceNumbers()
        self.groups = np.full(_LEAST_ROWS, _NO_GROUP, np.int32)
        self.versions = np.zeros(_LEAST_ROWS, np.int64)
        self.scratch = np.full(_LEAST_ROWS, -1, np.int64)  # for `folds.distinct_rows`
        # What changes, and images keep: see `arrays`.
        self.alive = np.zeros(_LEAST_ROWS, np.bool_)
        self.stamps = np.zeros(_LEAST_ROWS, np.int64)
        self.columns = layout.empty(_LEAST_ROWS)
        self.size = 0
        self.dead: list[Array] = []
        self.image: ColumnImage | None = None  # the newest; older ones behind it
        self.epoch = 0  # the registry's when `image` was looked up
        self.buried_at = -1  # the registry's epoch when dead rows were last freed
        self.modifications = 0  # grows when a row is added or removed, or rows are rolled back
        self.saved = 0  # rows saved in images, since the table was made

    # -- the owner's thread ----------------------------------------------------------------------------------

    def numbers_of(self, namespaces: list[Any]) -> Array:
        """Return the number of each namespace, for `rows_of`; frees what nobody needs any more first."""
        with self.registry.lock:
            self._touch()
            if self.buried_at != self.registry.epoch:
                self._bury()
            self.namespaces.drop_unused()
            return np.array([self.namespaces.number(namespace) for namespace in namespaces], np.int32)

    def rows_of(self, data: Any, offsets: Array, groups: Array, namespaces: Array) -> Array:
        """Return the row of each key; an unknown one gets a row that is not alive yet."""
        with self.registry.lock:
            self._touch()
            before = self.index.entries
            rows = self.index.rows_of(data, offsets, namespaces)
            if self.index.entries > before:
                self._make_room()
                fresh = self.groups[rows] == _NO_GROUP
                self.groups[rows[fresh]] = groups[fresh]
                added = distinct(rows[fresh])
                self.namespaces.add_rows(self.index.namespaces_of(added))
                self.dead.append(added)
        return rows

    def gather(self, rows: Array) -> list[Column]:
        """Return copies of what `rows` have; of those not alive, nothing yet."""
        dead = np.flatnonzero(~self.alive[rows])
        found = [
            Column(column.values[rows], None if column.nulls is None else column.nulls[rows]) for column in self.columns
        ]
        if len(dead):
            for column, empty in zip(found, self.layout.empty(1), strict=True):
                column.values[dead] = empty.values[0]
                if column.nulls is not None:
                    column.nulls[dead] = True
        return found

    def write(self, rows: Array, columns: list[Column], stamps: Array | None) -> None:
        """Set what `rows`, each of them once, have; they are alive then."""
        with self.registry.lock:
            self._touch()
            self._save(rows)
            for mine, column in zip(self.columns, columns, strict=True):
                mine.values[rows] = column.values
                if mine.nulls is not None:
                    mine.nulls[rows] = column.nulls
            if stamps is not None:
                self.stamps[rows] = stamps
            added = len(rows) - int(np.count_nonzero(self.alive[rows]))
            if added:
                self.alive[rows] = True
                self.size += added
                self.modifications += 1

    def remove(self, rows: Array) -> int:
        """Remove the entries of `rows`, each of them once; return how many there were."""
        with self.registry.lock:
            self._touch()
            rows = rows[self.alive[rows]]
            if len(rows):
                self._save(rows)
                self.alive[rows] = False
                self.size -= len(rows)
                self.modifications += 1
                self.dead.append(rows)
                if self.image is None:
                    self._bury()
        return len(rows)

    def touched(self, version: int) -> tuple[Array, list[Array], list[Array]]:
        """Rows that changed since a snapshot, ascending; what they had then, and what they have: see `arrays`."""
        with self.registry.lock:
            images = oldest_first(self.image, version)
            if len(images) == 1 and images[0].parts:
                rows, then = images[0].sorted()
            else:
                rows = _rows_of(images)
                then = self._as_of(rows, images)
            return rows, then, [array[rows] for array in self.arrays()]

    # -- any thread ------------------------------------------------------------------------------------------

    def arrays(self) -> list[Array]:
        """The arrays of what changes: alive, stamps, values and nulls of each field; versions last."""
        parts = [part for column in self.columns for part in (column.values, column.nulls)]
        return [self.alive, self.stamps, *[part for part in parts if part is not None], self.versions]

    def columns_in(self, arrays: list[Array]) -> list[Column]:
        """The columns among arrays that are in the order of `arrays`."""
        parts = iter(arrays[2:])
        return [Column(next(parts), next(parts) if field.masked else None) for field in self.layout.fields]

    def read(self, rows: Array, point: SnapshotPoint) -> list[Array]:
        """What `rows`, ascending, had at a live snapshot: in the order of `arrays`; the caller holds the lock."""
        point.check_live()
        return self._as_of(rows, oldest_first(self.image, point.version))

    def _as_of(self, rows: Array, images: list[ColumnImage]) -> list[Array]:
        found = [array[rows] for array in self.arrays()]
        for image in reversed(images):  # the oldest last: it wins
            image.lay_over(rows, found)
        return found

    # -- called by the registry, under its lock --------------------------------------------------------------

    def put_back(self, snapshot: SnapshotPoint) -> None:
        """Roll back to a snapshot since which rows changed."""
        self._enter_epoch()
        images = oldest_first(self.image, snapshot.version)
        rows = _rows_of(images)
        then = self._as_of(rows, images)
        if images[-1].version > snapshot.version:
            self._save(rows)  # newer snapshots stay readable: for them this is a change like any other
            then[-1] = self.versions[rows]
        else:  # a row's own version comes back: an older image may have it, and has it once
            images[-1].clear()
        self.size += int(np.count_nonzero(then[0])) - int(np.count_nonzero(self.alive[rows]))
        for array, values in zip(self.arrays(), then, strict=True):
            array[rows] = values
        self.dead.append(rows[~then[0]])
        self.modifications += 1

    def unlink_image(self, image: ColumnImage) -> None:
        """Drop the oldest image, whose snapshot is gone."""
        if self.image is image:
            self.image = None
        else:
            self._newer_than(image).older = None

    def merge_image(self, image: ColumnImage, version: int) -> bool:
        """Give a released snapshot's image to the next older live one (`version`); returns whether it is kept."""
        older = image.older
        if older is None or older.version < version:
            image.version = version
            return True
        older.absorb(image)
        if self.image is image:
            self.image = older
        else:
            self._newer_than(image).older = older
        return False

    def _newer_than(self, image: ColumnImage) -> ColumnImage:
        newer = self.image
        while newer is not None and newer.older is not image:
            newer = newer.older
        if newer is None:
            raise InvariantError(f"image of snapshot {image.version} is not in its table's chain")
        return newer

    # -- inside, under the lock ------------------------------------------------------------------------------

    def _touch(self) -> None:
        if self.registry.busy:
            self.registry.refuse_change()
        if self.epoch != self.registry.epoch:
            self._enter_epoch()

    def _enter_epoch(self) -> None:
        """After a snapshot, release or roll-back: find or make the image that rows are saved in."""
        registry = self.registry
        registry.touch()
        if registry.required == 0:
            self.image = None
        elif self.image is None or self.image.version < registry.required:
            self.image = ColumnImage(self, registry.required, self.image)
            registry.live[-1].images.append(self.image)
        self.epoch = registry.epoch

    def _save(self, rows: Array) -> None:
        """Save those of `rows` that a snapshot shares."""
        if self.image is not None:
            shared = rows[self.versions[rows] < self.registry.required]
            if len(shared):
                self.image.save(shared, [array[shared] for array in self.arrays()])
                self.versions[shared] = self.registry.version
                self.saved += len(shared)

    def _bury(self) -> None:
        """Free the dead rows that no image has."""
        self.buried_at = self.registry.epoch
        if not self.dead:
            return
        dead = distinct(np.concatenate(self.dead))
        dead = dead[~self.alive[dead]]
        kept = np.isin(dead, _rows_of(oldest_first(self.image, 0)))
        self.dead = [dead[kept]] if kept.any() else []
        free = dead[~kept]
        self.namespaces.remove_rows(self.index.namespaces_of(free))
        self.index.free(free)
        self.groups[free] = _NO_GROUP
        self.versions[free] = 0
        for column in self.columns:
            if column.values.dtype == object:
                column.values[free] = None

    def _make_room(self) -> None:
        """Make the arrays as long as there are rows, at least twice as long as before."""
        rows, length = self.index.rows, len(self.alive)
        if rows <= length:
            return
        added = max(rows, 2 * length) - length
        self.groups = np.concatenate([self.groups, np.full(added, _NO_GROUP, np.int32)])
        self.versions = np.concatenate([self.versions, np.zeros(added, np.int64)])
        self.scratch = np.full(length + added, -1, np.int64)
        self.alive = np.concatenate([self.alive, np.zeros(added, np.bool_)])
        self.stamps = np.concatenate([self.stamps, np.zeros(added, np.int64)])
        self.columns = [
            Column(
                np.concatenate([mine.values, more.values]),
                None if mine.nulls is None or more.nulls is None else np.concatenate([mine.nulls, more.nulls]),
            )
            for mine, more in zip(self.columns, self.layout.empty(added), strict=True)
        ]

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the module's invariants hold. O(all rows)."""
        with self.registry.lock:
            self.index.check_invariants()
            used = np.flatnonzero(self.groups != _NO_GROUP)
            if len(used) != self.index.entries or len(np.intersect1d(used, self.index.free_rows)):
                raise InvariantError(f"{len(used)} rows have a key group, {self.index.entries} have a key")
            self.namespaces.check_invariants(self.index.namespaces_of(used))
            alive = np.flatnonzero(self.alive)
            if len(alive) != self.size or not np.isin(alive, used).all():
                raise InvariantError(f"{len(alive)} rows are alive of {len(used)} in use; counted are {self.size}")
            dead = np.concatenate([*self.dead, np.empty(0, np.int64)])
            if not np.isin(used[~self.alive[used]], dead).all() or not np.isin(dead, used).all():
                raise InvariantError("rows in use are neither alive nor dead, or dead rows are not in use")
            for image in oldest_first(self.image, 0):
                rows = image.rows()
                if len(np.unique(rows)) != len(rows) or not np.isin(rows, used).all():
                    raise InvariantError(f"the image of snapshot {image.version} has rows twice, or free ones")
            if (self.scratch != -1).any():
                raise InvariantError("the scratch array was not cleaned up")


def _rows_of(images: list[ColumnImage]) -> Array:
    """The rows that any of the images has, ascending."""
    if len(images) == 1:
        return images[0].sorted()[0]  # it has each once
    return distinct(np.concatenate([np.empty(0, np.int64), *[image.rows() for image in images]]))


def distinct(rows: Array) -> Array:
    """The rows ascending, each once; several times as fast as `np.unique`, which hashes them.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    rows = np.sort(rows)
    return rows[np.append(True, rows[1:] != rows[:-1])] if len(rows) else rows
