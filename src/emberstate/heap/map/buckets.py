# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""The structure inside a `CopyOnWriteStateMap`: buckets of chained entries, rehashed incrementally.

Shape. An array of buckets with chained entries; a new entry becomes its bucket's head. When the map is more than 3/4
full, it makes a second table of twice the size, and from then on every operation first moves a few buckets over
(`do_chores`). Entries of bucket b of the primary table go to buckets b and b + capacity of the rehash table. Buckets
below `rehash_index` have moved: they are looked up in the rehash table, all others in the primary one.

Copy-on-write. See `snapshots` for versions and `before_images` for what a snapshot keeps. An entry that a snapshot may
see never changes: to change or hand out its state, the map copies the chain from the bucket's head down to it; to
remove it, the chain down to its predecessor. The bucket's old head is saved first.

Invariants
1.  `size` entries are in primary buckets [rehash_index, capacity) and, while growing, in rehash buckets
    [0, rehash_index) and [capacity, capacity + rehash_index). Each pair is there once, in the bucket of its hash.
2.  The content of other buckets is undefined and never read: primary buckets below `rehash_index` stay as they
    were if a snapshot can see that table; rehash buckets beyond it may hold what a roll-back left.
3.  A bucket's head is saved in the newest image before the bucket changes, unless the head (then it has been saved
    already) or the whole table is younger than the newest snapshot.
4.  The version of a state that can be lent (see `snapshots`) is the registry's while it is lent, and 0 once sealed.
5.  Nobody outside the map can reach what `loans` keeps beside a lent entry: sealing may put it back.

Thread safety: one owner thread. A snapshot's readers read tables and images, never other fields.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import InvariantError, StateTypeError
from emberstate.heap.map.before_images import BeforeImages, MapImage
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import ValueKind
from emberstate.state.changes import ABSENT

if not cython.compiled:  # compiled, these are C constants and functions
    from emberstate.heap.map.chains import entry_in, hash_of, overwrite_in, prefetch, state_in
    from emberstate.heap.map.entry import new_entry
    from emberstate.heap.map.geometry import (
        LOOKED_AT_PER_STEP,
        MOVED_PER_STEP,
        PAGE_MASK,
        PAGE_SHIFT,
        PREFETCH_DISTANCE,
    )

MINIMUM_CAPACITY = 4
MAXIMUM_CAPACITY = 1 << 30
DEFAULT_CAPACITY = 16  # small: there is a map per key group and state
DEAD_LOANS_KEPT = 1024  # loans of removed entries are dropped together: more than this many, and half of all


def head_of(table: PageTable, bucket: cython.Py_ssize_t) -> StateMapEntry | None:
    """Return the first entry of a bucket's chain, or None."""
    page: list[StateMapEntry | None] | None = table.pages[bucket >> PAGE_SHIFT]
    if page is None:
        return None
    head: StateMapEntry | None = page[bucket & PAGE_MASK]
    return head


def set_head(table: PageTable, bucket: cython.Py_ssize_t, head: StateMapEntry | None) -> int:
    """Make `head` the first entry of a bucket's chain."""
    page: list[StateMapEntry | None] | None = table.pages[bucket >> PAGE_SHIFT]
    if page is None:
        if head is None:
            return 0
        page = table.make_page(bucket >> PAGE_SHIFT)
    page[bucket & PAGE_MASK] = head
    return 0


def mix(raw: cython.longlong) -> int:
    """Mix a hash into 32 bits (the finaliser of Murmur3): the low bits choose the bucket."""
    low_32: cython.ulonglong = 0xFFFFFFFF  # C variables: a literal beyond 31 bits would be a Python object
    first: cython.ulonglong = 0x85EBCA6B
    second: cython.ulonglong = 0xC2B2AE35
    mixed: cython.ulonglong = (raw ^ (raw >> 32)) & low_32
    mixed = ((mixed ^ (mixed >> 16)) * first) & low_32
    mixed = ((mixed ^ (mixed >> 13)) * second) & low_32
    return mixed ^ (mixed >> 16)  # type: ignore[no-any-return]


class CopyOnWriteBuckets(StateMap):
    """Tables, chains and before-images; `CopyOnWriteStateMap` adds the operations of a state map."""

    __slots__ = (
        "birth",
        "chores",
        "dead_loans",
        "entry_copies",
        "epoch",
        "growths",
        "image",
        "last_namespace",
        "last_namespace_hash",
        "loans",
        "modifications",
        "primary",
        "primary_side",
        "rehash",
        "rehash_index",
        "rehash_side",
        "rehash_steps",
        "retired",
        "size",
        "state_copies",
        "threshold",
    )

    primary: PageTable
    rehash: PageTable | None
    rehash_index: int
    size: int
    threshold: int
    modifications: int  # grows when a pair is added or removed, or the map rolled back; iteration checks it
    birth: int  # the registry's version when the map was made
    image: MapImage | None  # the newest; older ones behind it
    primary_side: BeforeImages | None  # of the newest image; None if no live snapshot can see the table
    rehash_side: BeforeImages | None
    epoch: int  # the registry's epoch when `image` and the sides were last looked up
    loans: list[Any]  # entry, old state or ABSENT; entry, old state or ABSENT; … of lent entries
    dead_loans: int  # how many of these entries were removed from the map since
    retired: list[Any]  # pages of an outgrown table, freed one per operation
    chores: bool  # growing, or pages to free
    last_namespace: Any
    last_namespace_hash: int
    entry_copies: int
    state_copies: int
    rehash_steps: int
    growths: int

    def __init__(
        self, kind: ValueKind, registry: SnapshotRegistry | None = None, capacity: int = DEFAULT_CAPACITY
    ) -> None:
        """Make an empty map for states of `kind`, among the maps of `registry` (default: alone).

        `capacity` is rounded up to a power of two, 4 at the least.
        """
        if capacity < 0 or capacity > MAXIMUM_CAPACITY:
            raise ValueError(f"capacity must be from 0 to {MAXIMUM_CAPACITY}, not {capacity}")
        StateMap.__init__(self, kind, SnapshotRegistry() if registry is None else registry)
        self.birth = self.registry.version
        self.primary = PageTable(max(MINIMUM_CAPACITY, 1 << max(0, capacity - 1).bit_length()), self.birth)
        self.rehash = None
        self.rehash_index = 0
        self.size = 0
        self.threshold = self.primary.capacity // 4 * 3
        self.modifications = 0
        self.image = None
        self.primary_side = None
        self.rehash_side = None
        self.epoch = 0
        self.loans = []
        self.dead_loans = 0
        self.retired = []
        self.chores = False
        self.last_namespace = ABSENT  # equal to no namespace
        self.last_namespace_hash = 0
        self.entry_copies = 0
        self.state_copies = 0
        self.rehash_steps = 0
        self.growths = 0

    # -- called by the registry, under its lock ----------------------------------------------------------

    def unlink_image(self, image: MapImage) -> None:
        """Drop the oldest image of this map, whose snapshot is gone."""
        if self.image is image:
            self.image = None
            return
        newer = self.image
        while newer is not None and newer.older is not image:
            newer = newer.older
        if newer is None:
            raise InvariantError(f"image of snapshot {image.version} is not in its map's chain")
        newer.older = None

    def merge_image(self, image: MapImage, version: cython.uint) -> bool:
        """Give a released snapshot's image to the next older live one (`version`); returns whether it is kept."""
        older = image.older
        if older is None or older.version < version:
            image.hand_to(version)
            return True
        older.absorb(image)
        if self.image is image:
            self.image = older
        else:
            newer = self.image
            while newer is not None and newer.older is not image:
                newer = newer.older
            if newer is None:
                raise InvariantError(f"image of snapshot {image.version} is not in its map's chain")
            newer.older = older
        return False

    def seal_loans(self) -> None:
        """Seal every lent state; see `snapshots`."""
        loans: list[Any] = self.loans
        position: cython.Py_ssize_t
        for position in range(0, len(loans), 2):
            entry: StateMapEntry = loans[position]
            if entry.state_version != 0:  # else removed since, or sealed before a copy raised
                lent = entry.state  # kept to the end: its `__del__` may use the map
                entry.state = self.kind.seal(lent, loans[position + 1])
                entry.state_version = 0
        self.forget_loans()
        if self.image is not None:
            self.image.repeats = True  # lent again, an entry is logged again

    def forget_loans(self) -> None:
        """Forget all loans: they are sealed, or a roll-back removes the entries."""
        self.loans.clear()
        self.dead_loans = 0

    def drop_dead_loans(self) -> int:
        """Forget loans of removed entries, which would pile up in a map that is never sealed."""
        kept: list[Any] = []
        position: cython.Py_ssize_t
        for position in range(0, len(self.loans), 2):
            entry: StateMapEntry = self.loans[position]
            if entry.state_version != 0:
                kept.append(entry)
                kept.append(self.loans[position + 1])
        if not kept:
            kept = self.loans[:2]  # never empty: the registry has this map among its lenders
        self.loans = kept
        self.dead_loans = 0
        return 0

    # -- inside ----------------------------------------------------------------------------------------------

    def pair_hash(self, key: Hashable, namespace: Hashable) -> int:
        """Return the hash that chooses a pair's bucket; for any thread."""
        return mix(hash(key) ^ hash(namespace))

    def hash_of(self, key: Hashable, namespace: Hashable) -> int:
        """`pair_hash` for the owner's thread; caches the last namespace's hash, for mostly it is the next one, too."""
        if key is None:
            raise StateTypeError(f"a key must not be None (namespace {namespace!r})", option="key")
        hash: cython.Py_hash_t = hash_of(self.registry, key)  # first: it may look up another pair in this map
        if namespace is not self.last_namespace:
            if namespace is None:
                raise StateTypeError(f"a namespace must not be None (key {key!r})", key=key, option="namespace")
            self.last_namespace_hash = hash_of(self.registry, namespace)
            self.last_namespace = namespace
        return mix(hash ^ self.last_namespace_hash)

    def find(self, hash: cython.uint, key: Hashable, namespace: Hashable) -> StateMapEntry | None:
        """Return the live entry of the pair, or None."""
        table: PageTable = self.primary
        bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            bucket = hash & (table.capacity - 1)
        return entry_in(self.registry, table, bucket, hash, key, namespace)

    def find_state(self, hash: cython.uint, key: Hashable, namespace: Hashable) -> Any:
        """Return the live state of the pair, or None; unlike `find`, counts no reference to the entry."""
        table: PageTable = self.primary
        bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            bucket = hash & (table.capacity - 1)
        return state_in(self.registry, table, bucket, hash, key, namespace)

    def overwrite(self, hash: cython.uint, key: Hashable, namespace: Hashable, state: Any) -> int:
        """Set the state of an entry already changed in this epoch: see `chains.overwrite_in`."""
        table: PageTable = self.primary
        bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            bucket = hash & (table.capacity - 1)
        return overwrite_in(self.registry, table, bucket, hash, key, namespace, state)

    def lend(self, entry: StateMapEntry) -> Any:
        """Hand out a mutable state, a copy if a snapshot shares it, and note it as changed."""
        registry: SnapshotRegistry = self.registry
        if registry.busy:
            registry.refuse_change()
        if self.epoch != registry.epoch:
            self.enter_epoch()
        old = entry.state
        new = old
        if entry.state_version < registry.required:
            new = self._copied(old)  # first: if it raises, nothing has changed
        if entry.entry_version < registry.required:
            entry = self.writable(entry)
        self.note(entry, old)
        entry.state = new
        entry.state_version = registry.version
        return new

    def write(self, entry: StateMapEntry, state: Any) -> int:
        """Replace the state of an entry."""
        registry: SnapshotRegistry = self.registry
        if registry.busy:
            registry.refuse_change()
        if self.epoch != registry.epoch:
            self.enter_epoch()
        if entry.entry_version < registry.required:
            entry = self.writable(entry)
        old = entry.state  # kept to the end: its `__del__` may use the map
        if entry.state_version != registry.version:
            self.note(entry, old)
            entry.state_version = registry.version
        entry.state = state
        return 0

    def insert(self, hash: cython.uint, key: Hashable, namespace: Hashable, state: Any) -> int:
        """Add an entry for a pair that has none, at the head of its bucket."""
        registry: SnapshotRegistry = self.registry
        if registry.busy:
            registry.refuse_change()
        if self.epoch != registry.epoch:
            self.enter_epoch()
        if self.size > self.threshold:
            self.begin_growth()
        table: PageTable = self.primary
        side: BeforeImages | None = self.primary_side
        bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            side = self.rehash_side
            bucket = hash & (table.capacity - 1)
        head: StateMapEntry | None = head_of(table, bucket)
        if side is not None and (head is None or head.entry_version < registry.required):
            side.save(bucket, head)
        version: cython.uint = registry.version
        entry: StateMapEntry = new_entry(key, namespace, state, head, hash, version, version)
        self.note(entry, ABSENT)
        set_head(table, bucket, entry)
        self.size += 1
        self.modifications += 1
        return 0

    def unlink(self, target: StateMapEntry) -> int:
        """Remove an entry."""
        registry: SnapshotRegistry = self.registry
        if registry.busy:
            registry.refuse_change()
        if self.epoch != registry.epoch:
            self.enter_epoch()
        table: PageTable = self.primary
        side: BeforeImages | None = self.primary_side
        bucket: cython.Py_ssize_t = target.hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            side = self.rehash_side
            bucket = target.hash & (table.capacity - 1)
        head: StateMapEntry | None = head_of(table, bucket)
        image: MapImage | None = self.image
        if image is not None:
            if target.state_version != registry.version:
                image.log.append(target)
                image.log.append(target.state)
            image.repeats = True  # the pair may come back, as another entry that is logged again
        if head is target:
            if side is not None and target.entry_version < registry.required:
                side.save(bucket, head)
            set_head(table, bucket, target.next)
        else:
            predecessor: StateMapEntry = self.in_chain(head)
            while predecessor.next is not target:
                predecessor = self.in_chain(predecessor.next)
            if predecessor.entry_version < registry.required:
                predecessor = self.writable(predecessor)
            predecessor.next = target.next
        if self.kind.lends and target.state_version == registry.version:
            target.state_version = 0  # a lent entry is no snapshot's: it may be marked as gone
            self.dead_loans += 1
            if self.dead_loans > DEAD_LOANS_KEPT and 4 * self.dead_loans > len(self.loans):
                self.drop_dead_loans()
        self.size -= 1
        self.modifications += 1
        return 0

    def writable(self, target: StateMapEntry) -> StateMapEntry:
        """Copy the shared entries of the chain down to `target`; returns the entry to change."""
        registry: SnapshotRegistry = self.registry
        required: cython.uint = registry.required
        version: cython.uint = registry.version
        table: PageTable = self.primary
        side: BeforeImages | None = self.primary_side
        bucket: cython.Py_ssize_t = target.hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            side = self.rehash_side
            bucket = target.hash & (table.capacity - 1)
        entry: StateMapEntry = self.in_chain(head_of(table, bucket))
        if side is not None and entry.entry_version < required:
            side.save(bucket, entry)
        previous: StateMapEntry | None = None
        while True:
            mine: StateMapEntry = entry
            if entry.entry_version < required:
                mine = new_entry(
                    entry.key,
                    entry.namespace,
                    entry.state,
                    entry.next,
                    entry.hash,
                    version,
                    entry.state_version,
                )
                self.entry_copies += 1
                if previous is None:
                    set_head(table, bucket, mine)
                else:
                    previous.next = mine
            if entry is target:
                return mine
            previous = mine
            entry = self.in_chain(entry.next)

    def in_chain(self, entry: StateMapEntry | None) -> StateMapEntry:
        """Return a link on the way to an entry of this chain; raises if a `__del__` has removed it."""
        if entry is None:
            self.registry.refuse_change()
        link: StateMapEntry = cython.cast(StateMapEntry, entry)
        return link

    def note(self, entry: StateMapEntry, old: Any) -> int:
        """Record the first change of an entry in this epoch, with its old state."""
        image: MapImage | None = self.image
        if image is not None:
            image.log.append(entry)
            image.log.append(old)
        if self.kind.lends:
            if not self.loans:
                self.registry.lenders.append(self)
            self.loans.append(entry)
            # Without a snapshot the state itself is handed out: then the caller can reach `old`, too.
            self.loans.append(ABSENT if image is None else old)
        return 0

    def _detached(self, entry: StateMapEntry) -> Any:
        """Return the state of an entry that is about to leave the map; the caller owns it."""
        if self.kind.immutable or entry.state_version >= self.registry.required:
            return entry.state
        return self._copied(entry.state)

    def _copied(self, state: Any) -> Any:
        """Return a copy of a state; changes are rejected meanwhile."""
        registry: SnapshotRegistry = self.registry
        self.state_copies += 1
        registry.busy += 1
        try:
            return self.kind.copy(state)
        finally:
            registry.busy -= 1

    def begin_growth(self) -> int:
        """Make the rehash table, twice the size of the primary one."""
        capacity: cython.Py_ssize_t = self.primary.capacity * 2
        if self.rehash is not None:
            raise InvariantError(f"growth to {capacity} buckets started before the last one ended")
        if capacity > MAXIMUM_CAPACITY:
            self.threshold = 2**62  # from here on only chains grow
            return 0
        self.rehash = PageTable(capacity, self.registry.version)
        self.rehash_index = 0
        self.rehash_side = None  # younger than every snapshot
        self.threshold = capacity // 4 * 3
        self.chores = True
        self.growths += 1
        return 0

    def do_chores(self) -> int:
        """Before an operation: move some buckets to the rehash table, and free a page of an outgrown table."""
        if self.registry.busy:
            return 0
        if self.retired:
            self.retired.pop()
        if self.rehash is None:
            self.chores = len(self.retired) > 0
            return 0
        registry: SnapshotRegistry = self.registry
        if self.epoch != registry.epoch:
            self.enter_epoch()
        primary: PageTable = self.primary
        rehash: PageTable = self.rehash
        capacity: cython.Py_ssize_t = primary.capacity
        required: cython.uint = registry.required
        version: cython.uint = registry.version
        bucket: cython.Py_ssize_t = self.rehash_index
        last: cython.Py_ssize_t = min(capacity, bucket + LOOKED_AT_PER_STEP)
        moved: cython.Py_ssize_t = 0
        side: BeforeImages | None = self.rehash_side
        seen: cython.bint = self.primary_side is not None
        while moved < MOVED_PER_STEP and bucket < last:
            head: StateMapEntry | None = head_of(primary, bucket)
            low: StateMapEntry | None = None
            high: StateMapEntry | None = None
            entry: StateMapEntry | None = head
            while entry is not None:
                following: StateMapEntry | None = entry.next
                if entry.entry_version < required:
                    entry = new_entry(
                        entry.key,
                        entry.namespace,
                        entry.state,
                        None,
                        entry.hash,
                        version,
                        entry.state_version,
                    )
                    self.entry_copies += 1
                if entry.hash & capacity:
                    entry.next = high
                    high = entry
                else:
                    entry.next = low
                    low = entry
                moved += 1
                entry = following
            if side is not None and bucket < rehash.reached:
                # Moved before and rolled back: a snapshot on that side branch may see these buckets.
                side.save(bucket, head_of(rehash, bucket))
                side.save(bucket + capacity, head_of(rehash, bucket + capacity))
            set_head(rehash, bucket, low)
            set_head(rehash, bucket + capacity, high)
            if not seen and head is not None:
                set_head(primary, bucket, None)
            bucket += 1
            if not seen and (bucket & PAGE_MASK) == 0:
                primary.pages[(bucket - 1) >> PAGE_SHIFT] = None
        # Prefetch for the next operations: as many buckets as this one moved, PREFETCH_DISTANCE ahead.
        ahead: cython.Py_ssize_t = min(capacity, self.rehash_index + PREFETCH_DISTANCE)
        last = min(capacity, bucket + PREFETCH_DISTANCE)
        while ahead < last:
            prefetch(primary, ahead)
            ahead += 1
        self.rehash_index = bucket
        if rehash.reached < bucket:
            rehash.reached = bucket
        self.rehash_steps += 1
        if bucket == capacity:
            self.finish_growth()
        return 0

    def finish_growth(self) -> int:
        """Make the rehash table the primary one."""
        if self.primary_side is None:
            # Pages kept for a snapshot that was released meanwhile: freeing them all at once would stall.
            self.retired = [page for page in self.primary.pages if page is not None]
        self.primary = cython.cast(PageTable, self.rehash)
        self.rehash = None
        self.rehash_index = 0
        self.primary_side = self.rehash_side
        self.rehash_side = None
        self.chores = len(self.retired) > 0
        return 0

    def enter_epoch(self) -> int:
        """After a snapshot, release or roll-back: find or make the image that changes are recorded in."""
        registry: SnapshotRegistry = self.registry
        with registry.lock:
            registry.touch()
            if registry.required == 0:
                self.image = None
            elif self.image is None or self.image.version < registry.required:
                image = MapImage(
                    self,
                    registry.required,
                    self.primary,
                    self.rehash,
                    self.rehash_index,
                    self.size,
                    self.image,
                )
                registry.live[len(registry.live) - 1].images.append(image)
                self.image = image
            elif self.image.version != registry.version:
                # A newer snapshot came and went: an entry changed before it and after it is noted twice.
                self.image.repeats = True
            self.refresh_sides()
            self.epoch = registry.epoch
        return 0

    def refresh_sides(self) -> int:
        """Look up the live tables' before-images in the newest image."""
        image: MapImage | None = self.image
        self.primary_side = None
        self.rehash_side = None
        if image is not None:
            self.primary_side = image.side_of(self.primary)
            if self.rehash is not None:
                self.rehash_side = image.side_of(self.rehash)
        return 0

    def images_since(self, version: cython.uint) -> list[MapImage]:
        """Return the images of snapshots from `version` on, oldest first."""
        images: list[MapImage] = []
        image: MapImage | None = self.image
        while image is not None and image.version >= version:
            images.append(image)
            image = image.older
        images.reverse()
        return images
