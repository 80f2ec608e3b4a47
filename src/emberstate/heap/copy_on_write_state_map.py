# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""`CopyOnWriteStateMap`: a hash map that grows a little with every operation and can be read as it was.

Shape. An array of buckets with chained entries, new ones at the head. When more than 3/4 full a second table of twice
the size is set beside the first, and from then on every get, put, contains and remove first moves a few buckets over.
Bucket b of the primary table goes to b and b + capacity of the rehash table; `rehash_index` says how far that has
come, so a bucket below it is looked up in the rehash table, any other in the primary one.

Copy-on-write. See `snapshots` for versions and `before_images` for what a snapshot keeps. An entry that a snapshot
may see is never changed: to change or hand out the state of one, the chain from the bucket's head down to it is
copied; to remove one, the chain down to its predecessor. The bucket's old head is saved first.

Invariants
1.  `size` entries are in: primary buckets [rehash_index, capacity), and while growing rehash buckets
    [0, rehash_index) and [capacity, capacity + rehash_index). Each pair once, in the bucket its hash gives.
2.  What lies in other buckets is undefined and never read: primary buckets below `rehash_index` stay as they were if a
    snapshot can see that table; rehash buckets beyond it may hold what a roll-back left.
3.  A bucket's head goes into the newest image before the bucket changes, unless the head is younger than the newest
    snapshot (then that has happened), or the whole table is.
4.  A state is lent (see `snapshots`) exactly if its version is the registry's; 0 once it is sealed.

Thread safety: one owner thread. A snapshot's readers look at tables and images, never at the map's other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import cython

from emberstate.errors import InvariantError
from emberstate.heap.before_images import BeforeImages, MapImage

from emberstate.heap.page_table import PageTable
from emberstate.heap.snapshots import Snapshot, SnapshotRegistry
from emberstate.heap.state_map import StateMap, StateMapStatistics
from emberstate.heap.state_map_entry import StateMapEntry
from emberstate.heap.value_kind import ValueKind
from emberstate.state.changes import ABSENT, EntryChange

if not cython.compiled:  # compiled, these are C constants and functions
    from emberstate.heap.geometry import LOOKED_AT_PER_STEP, MOVED_PER_STEP, PAGE_MASK, PAGE_SHIFT
    from emberstate.heap.state_map_entry import new_entry

MINIMUM_CAPACITY = 4
MAXIMUM_CAPACITY = 1 << 30
DEFAULT_CAPACITY = 16  # a map per key group and state: an empty one should cost little


def head_of(table: PageTable, bucket: cython.Py_ssize_t) -> StateMapEntry | None:
    """The first entry of a bucket's chain, or None."""
    page: list[StateMapEntry | None] | None = table.pages[bucket >> PAGE_SHIFT]
    if page is None:
        return None
    return page[bucket & PAGE_MASK]


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
    """Spread a hash over 32 bits (the finaliser of Murmur3), for buckets are chosen by the low ones."""
    low_32: cython.ulonglong = 0xFFFFFFFF  # as C variables: a literal beyond 31 bits would be a Python object
    first: cython.ulonglong = 0x85EBCA6B
    second: cython.ulonglong = 0xC2B2AE35
    mixed: cython.ulonglong = (raw ^ (raw >> 32)) & low_32
    mixed = ((mixed ^ (mixed >> 16)) * first) & low_32
    mixed = ((mixed ^ (mixed >> 13)) * second) & low_32
    return mixed ^ (mixed >> 16)


class CopyOnWriteStateMap(StateMap):
    """The state map of one key group, with incremental rehash and copy-on-write snapshots.

    >>> from emberstate.heap.value_kind import IMMUTABLE
    >>> states = CopyOnWriteStateMap(IMMUTABLE)
    >>> states.put("ann", "window-1", 3)
    >>> with states.snapshot() as before:
    ...     states.put("ann", "window-1", 4)
    ...     before.get("ann", "window-1"), states.get("ann", "window-1"), states.changes(before.point)
    (3, 4, [('ann', 'window-1', ((<Op.REPLACED: 1>, 4),))])
    """

    __slots__ = (
        "birth", "chores", "entry_copies", "epoch", "growths", "image", "last_namespace", "last_namespace_hash",
        "loans", "modifications", "primary", "primary_side", "rehash", "rehash_index", "rehash_side",
        "rehash_steps", "retired", "size", "state_copies", "threshold",
    )

    primary: PageTable
    rehash: PageTable | None
    rehash_index: int
    size: int
    threshold: int
    modifications: int  # grows when a pair is added or removed, or the map rolled back; iteration watches it
    birth: int  # the registry's version when the map was made
    image: MapImage | None  # the newest; older ones behind it
    primary_side: BeforeImages | None  # of the newest image; None if no live snapshot can see the table
    rehash_side: BeforeImages | None
    epoch: int  # the registry's when `image` and the sides were last looked up
    loans: list[Any]  # entry, state before; … for what is lent and not sealed
    retired: list[Any]  # pages of a table that is done with, freed one per operation
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
        self.registry = SnapshotRegistry() if registry is None else registry
        self.kind = kind
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
        self.retired = []
        self.chores = False
        self.last_namespace = None
        self.last_namespace_hash = hash(None)
        self.entry_copies = 0
        self.state_copies = 0
        self.rehash_steps = 0
        self.growths = 0

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None. What is returned may be changed by the caller, and that change counts."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        if entry is None:
            return None
        if self.kind.immutable or entry.state_version == self.registry.version:
            return entry.state
        return self.lend(entry)

    def peek(self, key: Hashable, namespace: Hashable) -> Any:
        """Return the state, or None, to look at only: the caller must not change it nor keep it."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        return None if entry is None else entry.state

    def contains_key(self, key: Hashable, namespace: Hashable) -> bool:
        """Whether there is an entry, be its state None or not."""
        if self.chores:
            self.do_chores()
        return self.find(self.hash_of(key, namespace), key, namespace) is not None

    # -- writing --------------------------------------------------------------------------------------------------

    def put(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state; returns None."""
        if self.chores:
            self.do_chores()
        hash: cython.uint = self.hash_of(key, namespace)
        entry = self.find(hash, key, namespace)
        if entry is None:
            self.insert(hash, key, namespace, state)
        else:
            self.write(entry, state)

    def put_and_get_old(self, key: Hashable, namespace: Hashable, state: Any) -> Any:
        """Set the state and return the one before, or None."""
        if self.chores:
            self.do_chores()
        hash: cython.uint = self.hash_of(key, namespace)
        entry = self.find(hash, key, namespace)
        if entry is None:
            self.insert(hash, key, namespace, state)
            return None
        old = self._detached(entry)
        self.write(entry, state)
        return old

    def remove(self, key: Hashable, namespace: Hashable) -> bool:
        """Remove the entry; whether there was one."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        if entry is None:
            return False
        self.unlink(entry)
        return True

    def remove_and_get_old(self, key: Hashable, namespace: Hashable) -> Any:
        """Remove the entry and return its state, or None."""
        if self.chores:
            self.do_chores()
        entry = self.find(self.hash_of(key, namespace), key, namespace)
        if entry is None:
            return None
        old = self._detached(entry)
        self.unlink(entry)
        return old

    def transform(
        self, key: Hashable, namespace: Hashable, argument: Any, function: Callable[[Any, Any], Any]
    ) -> Any:
        """Set the state to `function(state or None, argument)` and return it; if that raises, nothing has changed."""
        old = self.peek(key, namespace)
        # A copy even where no snapshot asks for one: the function may change it and then raise.
        new = function(old if old is None or self.kind.immutable else self.kind.copy(old), argument)
        self.put(key, namespace, new)
        return new

    # -- iteration ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        """Iterate over (key, namespace, state); states are views. Reading meanwhile is fine, adding or removing raises.

        The walk goes by cells, the buckets of the table as it was at the start, wherever rehashing has moved their
        entries since; so growth neither hides nor repeats one.
        """
        started = self.modifications
        cells = self.primary.capacity
        kind = self.kind
        for number in range(cells):
            for entry in self.cell(number, cells):
                if self.modifications != started:
                    raise RuntimeError(
                        "the state map was added to, removed from or rolled back during iteration: "
                        "collect what to change first, or use visitor()"
                    )
                yield entry.key, entry.namespace, kind.view(entry.state, None)

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`; O(all entries)."""
        started = self.modifications
        cells = self.primary.capacity
        for number in range(cells):
            for entry in self.cell(number, cells):
                if self.modifications != started:
                    raise RuntimeError("the state map was changed during iteration over its keys: collect them first")
                if entry.namespace == namespace:
                    yield entry.key

    def cell(self, number: cython.Py_ssize_t, cells: cython.Py_ssize_t) -> list[StateMapEntry]:
        """The entries whose hash modulo `cells` (a power of two) is `number`, wherever they are now."""
        entries: list[StateMapEntry] = []
        capacity: cython.Py_ssize_t = self.primary.capacity
        bucket: cython.Py_ssize_t = number & (capacity - 1)  # a roll-back may have made the table smaller
        while bucket < capacity:
            if bucket < self.rehash_index:
                heads = (head_of(self.rehash, bucket), head_of(self.rehash, bucket + capacity))
            else:
                heads = (head_of(self.primary, bucket), None)
            for head in heads:
                entry: StateMapEntry | None = head
                while entry is not None:
                    if entry.hash & (cells - 1) == number:
                        entries.append(entry)
                    entry = entry.next
            bucket += cells
        return entries

    # -- points in time -------------------------------------------------------------------------------------------

    @property
    def is_rehashing(self) -> bool:
        """Whether the map is growing."""
        return self.rehash is not None

    def snapshot(self) -> Any:
        """Take a snapshot (of all maps of the registry) and open it on this map; a context manager."""
        return self.open(self.registry.snapshot())

    def open(self, snapshot: Snapshot) -> Any:
        """Read this map as a live snapshot of its registry saw it: `get`, `in`, `len`, iteration."""
        from emberstate.heap.copy_on_write_state_map_snapshot import CopyOnWriteStateMapSnapshot

        return CopyOnWriteStateMapSnapshot(self, snapshot)

    def changes(self, snapshot: Snapshot) -> list[EntryChange]:
        """List what differs from `snapshot`, one record per entry, at the cost of what was touched."""
        snapshot.check_live()
        self.registry.seal()
        images: list[MapImage] = self.images_since(snapshot.version)
        kind: ValueKind = self.kind
        seen: set[tuple[Any, Any]] | None = set() if len(images) > 1 else None
        result: list[EntryChange] = []
        for image in images:
            if image.repeats and seen is None:
                seen = set()
            log: list[Any] = image.log
            position: cython.Py_ssize_t
            for position in range(0, len(log), 2):
                entry: StateMapEntry = log[position]
                if seen is not None:
                    pair = (entry.key, entry.namespace)
                    if pair in seen:
                        continue
                    seen.add(pair)
                old = log[position + 1]
                live: StateMapEntry | None = self.find(entry.hash, entry.key, entry.namespace)
                new = ABSENT if live is None else live.state
                if new is old and not kind.nested:
                    continue
                steps = kind.delta(old, new, snapshot)
                if steps:
                    result.append((entry.key, entry.namespace, steps))
        return result

    def roll_back(self, snapshot: Snapshot) -> None:
        """Put this map back; called by `SnapshotRegistry.roll_back`, under its lock, which does it for all maps."""
        from emberstate.heap.copy_on_write_roll_back import roll_back_map

        roll_back_map(self, snapshot)

    def statistics(self) -> StateMapStatistics:
        """What the map is doing."""
        return StateMapStatistics(
            entries=self.size,
            capacity=(self.primary if self.rehash is None else self.rehash).capacity,
            is_rehashing=self.rehash is not None,
            rehash_index=self.rehash_index,
            version=self.registry.version,
            live_snapshots=len(self.registry.live),
            before_images=sum(image.image_count() for image in self.images_since(0)),
            entry_copies=self.entry_copies,
            state_copies=self.state_copies,
            rehash_steps=self.rehash_steps,
            growths=self.growths,
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure is broken. O(all entries)."""
        from emberstate.heap.copy_on_write_invariants import check_map

        check_map(self)

    # -- what the registry asks for, under its lock ---------------------------------------------------------------

    def unlink_image(self, image: MapImage) -> None:
        """Forget an image whose snapshot is gone; it is the oldest of this map."""
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
        """Hand the image of a released snapshot to the next older live one (`version`); whether it lives on as such."""
        older = image.older
        if older is None or older.version < version:
            image.version = version
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
        """Take back what is lent; see `snapshots`."""
        loans: list[Any] = self.loans
        position: cython.Py_ssize_t
        for position in range(0, len(loans), 2):
            entry: StateMapEntry = loans[position]
            entry.state = self.kind.seal(entry.state, loans[position + 1])
            entry.state_version = 0
        loans.clear()
        if self.image is not None:
            self.image.repeats = True  # lent again, an entry is logged again

    def forget_loans(self) -> None:
        """Drop what is lent without looking at it: a roll-back removes the entries."""
        self.loans.clear()

    # -- inside ---------------------------------------------------------------------------------------------------

    def pair_hash(self, key: Hashable, namespace: Hashable) -> int:
        """The hash by which a pair's bucket is chosen; for any thread."""
        return mix(hash(key) ^ hash(namespace))

    def hash_of(self, key: Hashable, namespace: Hashable) -> int:
        """`pair_hash`, remembering the namespace, which is mostly the last one again. For the owner's thread."""
        if namespace is not self.last_namespace:
            self.last_namespace_hash = hash(namespace)
            self.last_namespace = namespace
        return mix(hash(key) ^ self.last_namespace_hash)

    def find(self, hash: cython.uint, key: Hashable, namespace: Hashable) -> StateMapEntry | None:
        """The live entry of the pair, or None."""
        table: PageTable = self.primary
        bucket: cython.Py_ssize_t = hash & (table.capacity - 1)
        if bucket < self.rehash_index:
            table = cython.cast(PageTable, self.rehash)
            bucket = hash & (table.capacity - 1)
        entry: StateMapEntry | None = head_of(table, bucket)
        while entry is not None:
            if (
                entry.hash == hash
                and (entry.key is key or entry.key == key)
                and (entry.namespace is namespace or entry.namespace == namespace)
            ):
                return entry
            entry = entry.next
        return None

    def lend(self, entry: StateMapEntry) -> Any:
        """Hand out a mutable state: a copy if a snapshot shares it, and noted as changed either way."""
        registry: SnapshotRegistry = self.registry
        if self.epoch != registry.epoch:
            self.enter_epoch()
        old = entry.state
        new = old
        if entry.state_version < registry.required:
            new = self.kind.copy(old)  # first: if it raises, nothing has changed
            self.state_copies += 1
        if entry.entry_version < registry.required:
            entry = self.writable(entry)
        self.note(entry, old)
        entry.state = new
        entry.state_version = registry.version
        return new

    def write(self, entry: StateMapEntry, state: Any) -> int:
        """Replace the state of an entry."""
        registry: SnapshotRegistry = self.registry
        if self.epoch != registry.epoch:
            self.enter_epoch()
        if entry.entry_version < registry.required:
            entry = self.writable(entry)
        if entry.state_version != registry.version:
            self.note(entry, entry.state)
            entry.state_version = registry.version
        entry.state = state
        return 0

    def insert(self, hash: cython.uint, key: Hashable, namespace: Hashable, state: Any) -> int:
        """Add an entry for a pair that has none, at the head of its bucket."""
        if key is None or namespace is None:
            raise TypeError(f"neither key nor namespace may be None: key {key!r}, namespace {namespace!r}")
        registry: SnapshotRegistry = self.registry
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
            predecessor: StateMapEntry = cython.cast(StateMapEntry, head)
            while predecessor.next is not target:
                predecessor = cython.cast(StateMapEntry, predecessor.next)
            if predecessor.entry_version < registry.required:
                predecessor = self.writable(predecessor)
            predecessor.next = target.next
        self.size -= 1
        self.modifications += 1
        return 0

    def writable(self, target: StateMapEntry) -> StateMapEntry:
        """Copy what a snapshot shares of the chain from the bucket's head to `target`; the entry to change."""
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
        entry: StateMapEntry = cython.cast(StateMapEntry, head_of(table, bucket))
        if side is not None and entry.entry_version < required:
            side.save(bucket, entry)
        previous: StateMapEntry | None = None
        while True:
            mine: StateMapEntry = entry
            if entry.entry_version < required:
                mine = new_entry(
                    entry.key, entry.namespace, entry.state, entry.next, entry.hash, version, entry.state_version
                )
                self.entry_copies += 1
                if previous is None:
                    set_head(table, bucket, mine)
                else:
                    previous.next = mine
            if entry is target:
                return mine
            previous = mine
            entry = cython.cast(StateMapEntry, entry.next)

    def note(self, entry: StateMapEntry, old: Any) -> int:
        """Record that an entry is changed for the first time in this epoch, and what its state was."""
        image: MapImage | None = self.image
        if image is not None:
            image.log.append(entry)
            image.log.append(old)
        if self.kind.lends:
            if not self.loans:
                self.registry.lenders.append(self)
            self.loans.append(entry)
            self.loans.append(old)
        return 0

    def _detached(self, entry: StateMapEntry) -> Any:
        """The state of an entry that is about to leave the map, for the caller to have."""
        if self.kind.immutable or entry.state_version >= self.registry.required:
            return entry.state
        self.state_copies += 1
        return self.kind.copy(entry.state)

    def begin_growth(self) -> int:
        """Set a table of twice the size beside the primary one."""
        capacity: cython.Py_ssize_t = self.primary.capacity * 2
        if self.rehash is not None:
            raise InvariantError(f"growth to {capacity} buckets would start before the last one has ended")
        if capacity > MAXIMUM_CAPACITY:
            self.threshold = 2**62  # chains just get longer from here on
            return 0
        self.rehash = PageTable(capacity, self.registry.version)
        self.rehash_index = 0
        self.rehash_side = None  # younger than every snapshot
        self.threshold = capacity // 4 * 3
        self.chores = True
        self.growths += 1
        return 0

    def do_chores(self) -> int:
        """Before an operation: move some buckets to the rehash table, and free a page of a table that is done with."""
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
                        entry.key, entry.namespace, entry.state, None, entry.hash, version, entry.state_version
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
                # Moved once before, then rolled back: a snapshot from that other future may see these buckets.
                side.save(bucket, head_of(rehash, bucket))
                side.save(bucket + capacity, head_of(rehash, bucket + capacity))
            set_head(rehash, bucket, low)
            set_head(rehash, bucket + capacity, high)
            if not seen and head is not None:
                set_head(primary, bucket, None)
            bucket += 1
            if not seen and (bucket & PAGE_MASK) == 0:
                primary.pages[(bucket - 1) >> PAGE_SHIFT] = None
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
            # Pages kept for a snapshot that was released on the way: freeing them all at once would be a stall.
            self.retired = [page for page in self.primary.pages if page is not None]
        self.primary = cython.cast(PageTable, self.rehash)
        self.rehash = None
        self.rehash_index = 0
        self.primary_side = self.rehash_side
        self.rehash_side = None
        self.chores = len(self.retired) > 0
        return 0

    def enter_epoch(self) -> int:
        """After a snapshot, release or roll-back: find the image that before-images and the log go into from now on."""
        registry: SnapshotRegistry = self.registry
        with registry.lock:
            registry.touch()
            if registry.required == 0:
                self.image = None
            elif self.image is None or self.image.version < registry.required:
                image = MapImage(
                    self, registry.required, self.primary, self.rehash, self.rehash_index, self.size, self.image
                )
                registry.live[len(registry.live) - 1].images.append(image)
                self.image = image
            self.refresh_sides()
            self.epoch = registry.epoch
        return 0

    def refresh_sides(self) -> int:
        """Look up the before-images of the live tables in the newest image."""
        image: MapImage | None = self.image
        self.primary_side = None
        self.rehash_side = None
        if image is not None:
            self.primary_side = image.side_of(self.primary)
            if self.rehash is not None:
                self.rehash_side = image.side_of(self.rehash)
        return 0

    def images_since(self, version: cython.uint) -> list[MapImage]:
        """The images of snapshots from `version` on, oldest first."""
        images: list[MapImage] = []
        image: MapImage | None = self.image
        while image is not None and image.version >= version:
            images.append(image)
            image = image.older
        images.reverse()
        return images
