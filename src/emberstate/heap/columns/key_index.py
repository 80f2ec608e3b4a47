# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""`KeyIndex`: (key bytes, namespace number) → row number, by open addressing, for whole batches of keys.

Key bytes lie one behind the other in an arena; `starts`, `lengths` and `namespaces` say whose they are, by row. A slot
of the hash table is one word: the hash in the upper 32 bits, the row number + 2 in the lower ones; 0 is an empty slot,
1 one whose row was freed. Row numbers are given out in order of arrival, freed ones first, so they do not depend on
hashes. A probe goes from slot to slot; what a hash cannot tell apart, the bytes do.

Keys come as Arrow's large binary columns: bytes, and offsets of 64 bits. The hash is not stored anywhere and has a
seed of its process, so that nobody can choose keys that collide.

Invariants
1.  Each row in use has one slot, which a probe from its hash reaches without meeting an empty one; no two rows in use
    have the same key and namespace.
2.  `entries` rows are in use; `lengths` is -1 for the others, which are in `free_rows`, each once.
3.  At most two thirds of the slots are not empty.
4.  The bytes of rows in use do not overlap; `garbage` counts the bytes of no row.

Thread safety: one thread at a time; the caller sees to it (`ColumnTable`: the registry's lock).
"""

from __future__ import annotations

import os
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython
import numpy as np
import numpy.typing as npt

from emberstate.errors import InvariantError

if not cython.compiled:  # compiled, these are C constants and functions of the .pxd file
    EMPTY = 0
    TOMBSTONE = 1
    FIRST_ROW = 2

    def point(index: KeyIndex) -> int:
        """Do nothing: interpreted, there are no pointers."""
        return 0

    def hash_in_batch(index: KeyIndex, start: int, length: int, namespace: int) -> int:
        """The hash of a key that is looked up."""
        return hash((bytes(index.batch[start : start + length]), namespace)) & 0xFFFFFFFF

    def hash_of_row(index: KeyIndex, row: int) -> int:
        """The hash of a row's key."""
        return hash((index.key(row), index.namespaces[row])) & 0xFFFFFFFF

    def same_key(index: KeyIndex, row: int, start: int, length: int) -> bool:
        """Whether a row has the key that is looked up."""
        return index.lengths[row] == length and index.key(row) == bytes(index.batch[start : start + length])

    def copy_in(index: KeyIndex, target: int, start: int, length: int) -> int:
        """Copy the key that is looked up into the arena."""
        index.arena[target : target + length] = index.batch[start : start + length]
        return 0

    def copy_out(index: KeyIndex, data: memoryview, target: int, row: int) -> int:
        """Copy a row's key out of the arena."""
        key = index.key(row)
        data[target : target + len(key)] = key
        return 0

    def look_ahead(index: KeyIndex, i: int, count: int) -> int:
        """Do nothing: interpreted, caches do not matter."""
        return 0


SEED = int.from_bytes(os.urandom(8), "little")

LEAST_SLOTS = 16
LEAST_ARENA = 256
GARBAGE_KEPT = 65_536  # an arena with less garbage is not worth compacting

_NOTHING = memoryview(b"\0")  # a batch without bytes still needs one to point to
_NO_HASHES = np.empty(1, np.uint32).data

Rows = npt.NDArray[np.int64]


class KeyIndex:
    """The row numbers of keys.

    >>> index = KeyIndex()
    >>> data, offsets = b"annbob", np.array([0, 3, 6])
    >>> index.rows_of(data, offsets, np.zeros(2, np.int32)).tolist()
    [0, 1]
    >>> index.find(b"bob", 0), index.find(b"bob", 1), index.key(1)
    (1, -1, b'bob')
    """

    __slots__ = (
        "arena", "arena_used", "batch", "entries", "free_rows", "garbage", "hashes", "lengths", "mask", "namespaces",
        "rows", "slots", "starts", "tombstones", "vacant",
    )  # fmt: skip

    slots: Any  # memoryviews, typed when compiled
    arena: Any
    starts: Any
    lengths: Any
    namespaces: Any
    batch: Any
    hashes: Any
    rows: int  # row numbers ever given out
    entries: int
    tombstones: int
    arena_used: int
    garbage: int
    free_rows: list[int]
    mask: int
    vacant: int  # where a key goes that `seek` did not find

    def __init__(self) -> None:
        self.slots = np.zeros(LEAST_SLOTS, np.uint64).data
        self.mask = LEAST_SLOTS - 1
        self.arena = np.empty(LEAST_ARENA, np.uint8).data
        self.starts = np.zeros(LEAST_SLOTS, np.int64).data
        self.lengths = np.full(LEAST_SLOTS, -1, np.int32).data
        self.namespaces = np.zeros(LEAST_SLOTS, np.int32).data
        self.batch = _NOTHING
        self.hashes = _NO_HASHES
        self.rows = 0
        self.entries = 0
        self.tombstones = 0
        self.arena_used = 0
        self.garbage = 0
        self.free_rows = []
        self.vacant = 0
        point(self)

    # -- looking up ------------------------------------------------------------------------------------------

    def rows_of(self, data: Any, offsets: Any, namespaces: Any) -> Rows:
        """Return the row of each key, in the namespace of the same position; unknown ones get a row."""
        i: cython.Py_ssize_t
        row: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(offsets) - 1
        found = np.empty(count, np.int64)
        out: cython.longlong[::1] = found.data
        ends: cython.const[cython.longlong][::1] = memoryview(offsets)  # type: ignore[valid-type]
        spaces: cython.const[cython.int][::1] = memoryview(namespaces)  # type: ignore[valid-type]
        self.aim(data, count)
        hashes: cython.uint[::1] = self.hashes
        for i in range(count):
            hashes[i] = hash_in_batch(self, ends[i], ends[i + 1] - ends[i], spaces[i])
        for i in range(count):
            look_ahead(self, i, count)
            row = self.seek(hashes[i], ends[i], ends[i + 1] - ends[i], spaces[i])
            if row < 0:
                row = self.insert(hashes[i], ends[i], ends[i + 1] - ends[i], spaces[i])
            out[i] = row
        self.aim(_NOTHING, 0)
        return found

    def find_rows(self, data: Any, offsets: Any, namespaces: Any) -> Rows:
        """Return the row of each key, -1 where there is none."""
        i: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(offsets) - 1
        found = np.empty(count, np.int64)
        out: cython.longlong[::1] = found.data
        ends: cython.const[cython.longlong][::1] = memoryview(offsets)  # type: ignore[valid-type]
        spaces: cython.const[cython.int][::1] = memoryview(namespaces)  # type: ignore[valid-type]
        self.aim(data, count)
        hashes: cython.uint[::1] = self.hashes
        for i in range(count):
            hashes[i] = hash_in_batch(self, ends[i], ends[i + 1] - ends[i], spaces[i])
        for i in range(count):
            look_ahead(self, i, count)
            out[i] = self.seek(hashes[i], ends[i], ends[i + 1] - ends[i], spaces[i])
        self.aim(_NOTHING, 0)
        return found

    def find(self, key: bytes, namespace: cython.int) -> int:
        """Return the row of one key, or -1."""
        self.aim(key, 0)
        row: cython.Py_ssize_t = self.seek(hash_in_batch(self, 0, len(key), namespace), 0, len(key), namespace)
        self.aim(_NOTHING, 0)
        return row  # type: ignore[no-any-return]

    def row_of(self, key: bytes, namespace: cython.int) -> int:
        """Return the row of one key; an unknown one gets a row."""
        self.aim(key, 0)
        hash: cython.uint = hash_in_batch(self, 0, len(key), namespace)
        row: cython.Py_ssize_t = self.seek(hash, 0, len(key), namespace)
        if row < 0:
            row = self.insert(hash, 0, len(key), namespace)
        self.aim(_NOTHING, 0)
        return row  # type: ignore[no-any-return]

    # -- rows ------------------------------------------------------------------------------------------------

    def key(self, row: cython.Py_ssize_t) -> bytes:
        """Return the key bytes of a row in use."""
        start: cython.Py_ssize_t = self.starts[row]
        return bytes(self.arena[start : start + self.lengths[row]])

    def keys(self, rows: Rows) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Return the key bytes of rows in use as a binary column: bytes, offsets."""
        i: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(rows)
        numbers: cython.const[cython.longlong][::1] = np.ascontiguousarray(rows, np.int64).data  # type: ignore[valid-type]
        offsets = np.empty(count + 1, np.int64)
        ends: cython.longlong[::1] = offsets.data
        size: cython.Py_ssize_t = 0
        ends[0] = 0
        for i in range(count):
            size += self.lengths[numbers[i]]
            ends[i + 1] = size
        data = np.empty(size, np.uint8)
        out: cython.uchar[::1] = data.data
        for i in range(count):
            copy_out(self, out, ends[i], numbers[i])
        return data, offsets

    def namespaces_of(self, rows: Rows) -> npt.NDArray[np.int32]:
        """Return the namespace number of each row."""
        return np.asarray(self.namespaces)[rows]

    def free(self, rows: Rows) -> None:
        """Forget the keys of rows in use; later keys get these row numbers."""
        for row in rows.tolist():
            self.remove(row)
        if self.garbage > GARBAGE_KEPT and 2 * self.garbage > self.arena_used:
            self.make_arena_room(0)

    # -- inside ----------------------------------------------------------------------------------------------

    def aim(self, data: Any, count: cython.Py_ssize_t) -> int:
        """Make `data` the bytes of the keys that are looked up, with room for as many hashes."""
        batch = memoryview(data)
        self.batch = batch if len(batch) else _NOTHING
        self.hashes = np.empty(count, np.uint32).data if count else _NO_HASHES
        point(self)
        return 0

    def seek(
        self, hash: cython.uint, start: cython.Py_ssize_t, length: cython.Py_ssize_t, namespace: cython.int
    ) -> int:
        """Return the row of a key of the batch; -1 if there is none, and then `vacant` is the slot for it."""
        word: cython.ulonglong
        row: cython.Py_ssize_t
        low_32: cython.ulonglong = 0xFFFFFFFF
        slot: cython.ulonglong = hash & self.mask
        reusable: cython.bint = False
        while True:
            word = self.slots[slot]
            if word == EMPTY:
                if not reusable:
                    self.vacant = slot
                return -1
            if word == TOMBSTONE:
                if not reusable:
                    reusable = True
                    self.vacant = slot
            elif word >> 32 == hash:
                row = (word & low_32) - FIRST_ROW
                if self.namespaces[row] == namespace and same_key(self, row, start, length):
                    return row  # type: ignore[no-any-return]
            slot = (slot + 1) & self.mask

    def insert(
        self, hash: cython.uint, start: cython.Py_ssize_t, length: cython.Py_ssize_t, namespace: cython.int
    ) -> int:
        """Give a key of the batch, which `seek` has just not found, a row."""
        row: cython.Py_ssize_t
        if 3 * (self.entries + self.tombstones + 1) > 2 * len(self.slots):
            self.rehash(self.entries + 1)
            self.seek(hash, start, length, namespace)
        if self.arena_used + length > len(self.arena):
            self.make_arena_room(length)
        if self.free_rows:
            row = self.free_rows.pop()
        else:
            row = self.rows
            if row == len(self.lengths):
                self.make_room(2 * row)
            self.rows += 1
        copy_in(self, self.arena_used, start, length)
        self.starts[row] = self.arena_used
        self.lengths[row] = length
        self.namespaces[row] = namespace
        self.arena_used += length
        if self.slots[self.vacant] == TOMBSTONE:
            self.tombstones -= 1
        word: cython.ulonglong = hash
        self.slots[self.vacant] = (word << 32) | (row + FIRST_ROW)
        self.entries += 1
        return row  # type: ignore[no-any-return]

    def remove(self, row: cython.Py_ssize_t) -> int:
        """Free one row."""
        word: cython.ulonglong = hash_of_row(self, row)
        slot: cython.ulonglong = word & self.mask
        wanted: cython.ulonglong = (word << 32) | (row + FIRST_ROW)
        while self.slots[slot] != wanted:
            if self.slots[slot] == EMPTY:
                raise InvariantError(f"row {row} of a key index has no slot")
            slot = (slot + 1) & self.mask
        self.slots[slot] = TOMBSTONE
        self.tombstones += 1
        self.entries -= 1
        self.garbage += self.lengths[row]
        self.lengths[row] = -1
        self.free_rows.append(row)
        return 0

    def make_room(self, rows: cython.Py_ssize_t) -> int:
        """Make the arrays by row longer."""
        added = rows - len(self.lengths)
        self.starts = np.concatenate([np.asarray(self.starts), np.zeros(added, np.int64)]).data
        self.lengths = np.concatenate([np.asarray(self.lengths), np.full(added, -1, np.int32)]).data
        self.namespaces = np.concatenate([np.asarray(self.namespaces), np.zeros(added, np.int32)]).data
        point(self)
        return 0

    def rehash(self, entries: cython.Py_ssize_t) -> int:
        """Make a hash table of at least twice as many slots as `entries`, without tombstones."""
        i: cython.Py_ssize_t
        old: cython.ulonglong[::1] = self.slots
        size: cython.Py_ssize_t = LEAST_SLOTS
        while size < 2 * entries:
            size *= 2
        if 3 * entries > size:  # room for some more: the next rehash is not at the next key
            size *= 2
        slots: cython.ulonglong[::1] = np.zeros(size, np.uint64).data
        mask: cython.ulonglong = size - 1
        slot: cython.ulonglong
        word: cython.ulonglong
        for i in range(len(old)):
            word = old[i]
            if word >= FIRST_ROW:
                slot = (word >> 32) & mask
                while slots[slot] != EMPTY:
                    slot = (slot + 1) & mask
                slots[slot] = word
        self.slots = slots
        self.mask = mask
        self.tombstones = 0
        point(self)
        return 0

    def make_arena_room(self, length: cython.Py_ssize_t) -> int:
        """Move the keys in use to an arena without garbage that has room for `length` bytes more."""
        row: cython.Py_ssize_t
        used: cython.Py_ssize_t = self.arena_used - self.garbage
        arena: cython.uchar[::1] = np.empty(max(LEAST_ARENA, 2 * (used + length)), np.uint8).data
        target: cython.Py_ssize_t = 0
        for row in range(self.rows):
            if self.lengths[row] >= 0:
                copy_out(self, arena, target, row)
                self.starts[row] = target
                target += self.lengths[row]
        self.arena = arena
        self.arena_used = target
        self.garbage = 0
        point(self)
        return 0

    # -- inspection ------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the module's invariants hold. O(all rows)."""
        lengths = np.asarray(self.lengths)
        used = np.flatnonzero(lengths >= 0)
        if len(used) != self.entries or (len(used) and int(used.max()) >= self.rows):
            raise InvariantError(f"a key index counts {self.entries} rows of {self.rows}, in use are {len(used)}")
        if sorted([*self.free_rows, *used.tolist()]) != list(range(self.rows)):
            raise InvariantError(f"rows of a key index are neither in use nor free, or both: {self.free_rows!r:.200}")
        slots = np.asarray(self.slots)
        filled = int(np.count_nonzero(slots >= 2))
        tombstones = int(np.count_nonzero(slots == 1))
        if filled != self.entries or tombstones != self.tombstones or 3 * (filled + tombstones) > 2 * len(slots):
            raise InvariantError(f"a key index has {filled} full slots and {tombstones} tombstones of {len(slots)}")
        starts = np.asarray(self.starts)
        order = used[np.lexsort((lengths[used], starts[used]))]
        ends = starts[order] + lengths[order]
        if np.any(ends[: len(ends) - 1] > starts[order][1:]) or (len(ends) and int(ends.max()) > self.arena_used):
            raise InvariantError("keys overlap in a key index's arena")
        if int(lengths[used].sum()) + self.garbage != self.arena_used:
            raise InvariantError(f"a key index's arena has {self.arena_used} bytes, {self.garbage} of them garbage")
        for row in used.tolist():
            found = self.find(self.key(row), int(np.asarray(self.namespaces)[row]))
            if found != row:
                raise InvariantError(f"the key of row {row} is found in row {found}")
