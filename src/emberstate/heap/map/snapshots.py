"""Versions and live snapshots of one backend: counted once for all its maps, so that a snapshot is O(1).

`version` grows by one with every snapshot, never else, and never shrinks. `required` is the version of the
newest live snapshot (0: none). The copy rule, everywhere: an entry or state whose version is below `required`
is shared with a snapshot and is copied before it is changed or handed out for change. `epoch` changes with
every snapshot, release and roll-back; a map that sees a new epoch looks up where it stands
(`CopyOnWriteBuckets.enter_epoch`).

*Loans.* A mutable value that was handed out or in may be changed by its holder at any time. Before a snapshot
is taken, and before changes are listed, every lent value is sealed: put back if it is unchanged, else
replaced by a copy, so that a reference kept beyond that point reaches nothing.

*Code of users.* Keys and states may be of a user's class, whose `==`, hash, copying or pickling may do anything.
Wherever the engine runs it in the middle of its own work `busy` is not 0, and every change to a map of the registry is
refused: what the engine was looking at stays where it is.

*Release* may come from any thread. The oldest snapshot is dropped at once, by the caller. Any other one is
needed by the older ones behind it: the owner's thread merges it (now, or when it next takes a snapshot, lists
or rolls back).

Invariants: `live` ascends by version; every image stands in the `images` of a live snapshot of the same
version.

Thread safety: one owner thread changes maps, takes snapshots, lists changes and rolls back. Any thread may
read and release a snapshot. `lock` guards `live`, the chains of images, and a reader's page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import cython

from emberstate.errors import InvariantError, LifecycleError

FIRST_VERSION = 1  # 0 is older than every snapshot: the version of a state that is lent to nobody
MAX_VERSION = 2**32 - 2


class Snapshot:
    """A point in time of every map of one registry; a context manager that releases it.

    >>> registry = SnapshotRegistry()
    >>> with registry.snapshot() as snapshot:
    ...     snapshot.version, registry.required
    (2, 2)
    >>> registry.required
    0
    """

    __slots__ = ("frozen", "images", "registry", "released", "version")

    registry: SnapshotRegistry
    version: int
    images: list[Any]  # MapImage of every map changed since this and before the next snapshot
    frozen: dict[Any, Any]  # copies made at once by maps that cannot do better (`NestedStateMap`)
    released: bool

    def __init__(self, registry: SnapshotRegistry, version: cython.uint) -> None:
        self.registry = registry
        self.version = version
        self.images = []
        self.frozen = {}
        self.released = False

    def release(self) -> None:
        """Give the snapshot up, from any thread; a second call does nothing."""
        self.registry.release(self)

    def check_live(self) -> None:
        """Raise `LifecycleError` if the snapshot was released."""
        if self.released:
            raise LifecycleError(
                f"snapshot {self.version} was released: what it saw may have been changed since. "
                f"Keep it open while it is read (`with … as snapshot:`), or take a new one."
            )

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class SnapshotRegistry:
    """The version counter and the live snapshots of a set of maps.

    >>> registry = SnapshotRegistry()
    >>> first, second = registry.snapshot(), registry.snapshot()
    >>> second.release()
    >>> registry.version, registry.required
    (3, 2)
    """

    __slots__ = (
        "busy", "epoch", "lenders", "listeners", "live", "lock", "orphans", "owner", "required", "synchronous",
        "version",
    )

    version: int
    required: int
    epoch: int
    live: list[Snapshot]
    lock: threading.RLock
    lenders: list[Any]  # maps with values lent since the last seal
    synchronous: list[Any]  # maps that copy themselves when a snapshot is taken
    listeners: list[Any]  # told after a roll-back: `after_roll_back(snapshot)`
    orphans: set[int]  # versions of live snapshots that a roll-back left on a side branch
    owner: int
    busy: int  # how deep the owner's thread is in users' code that the engine has called

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self.required = 0
        self.epoch = 0
        self.live = []
        self.lock = threading.RLock()
        self.lenders = []
        self.synchronous = []
        self.listeners = []
        self.orphans = set()
        self.owner = threading.get_ident()
        self.busy = 0

    # -- the owner's thread ----------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Take a snapshot of every map: O(1), plus what was lent and not sealed yet."""
        if self.busy:
            self.refuse_change()
        self.seal()
        with self.lock:
            self.owner = threading.get_ident()
            self._merge_released()
            if self.version >= MAX_VERSION:
                raise InvariantError(
                    f"the version counter reached {MAX_VERSION}: take a checkpoint and restart the process"
                )
            snapshot = Snapshot(self, self.version + 1)
            self.version += 1
            self.live.append(snapshot)
            self._moved()
        try:
            for map in self.synchronous:
                map.freeze(snapshot)
        except BaseException:
            self.release(snapshot)
            raise
        return snapshot

    def roll_back(self, snapshot: Snapshot) -> None:
        """Put every map back to what `snapshot` saw, at the cost of what was touched since.

        The snapshot stays live and can be rolled back to again. Newer live snapshots stay readable, on a side
        branch. The version counter does not go back.
        """
        if self.busy:
            self.refuse_change()
        with self.lock:
            self.check_live(snapshot)
            self.owner = threading.get_ident()
            self._merge_released()
            self._moved()  # `required` is what the maps go by below
            affected: dict[int, Any] = {}
            newer = [other for other in self.live if other.version > snapshot.version]
            for other in [snapshot, *newer]:
                for image in other.images:
                    affected[id(image.map)] = image.map
            for lender in self.lenders:
                lender.forget_loans()
            self.lenders.clear()
            for map in [*affected.values(), *self.synchronous]:
                self.undisturbed(map.put_back, snapshot)
            if snapshot.version in self.orphans:  # from one branch to another: any other may be on a side branch now
                newer = self.live
            self.orphans.update(other.version for other in newer)
            self.orphans.discard(snapshot.version)
            self._moved()
        for listener in self.listeners:
            listener.after_roll_back(snapshot)

    def seal(self) -> None:
        """Take back every value lent since the last call: what a caller does to it later reaches nothing."""
        if self.lenders:
            if self.busy:
                self.refuse_change()
            for lender in self.lenders:
                then = self.undisturbed(lender.seal_loans)
                if then is not None:  # a lender that is no map, with changes to make
                    then()
            self.lenders.clear()

    def touch(self) -> None:
        """Note that the calling thread changes maps: merging of released snapshots is left to it."""
        self.owner = threading.get_ident()

    # -- users' code, on the owner's thread ------------------------------------------------------------------

    def same(self, one: Any, other: Any) -> bool:
        """Whether two keys, or namespaces, are equal; meanwhile nothing may change."""
        self.busy += 1
        try:
            return bool(one == other)
        finally:
            self.busy -= 1

    def hash_of(self, value: Any) -> int:
        """The hash of a key or a namespace; meanwhile nothing may change."""
        self.busy += 1
        try:
            return hash(value)
        finally:
            self.busy -= 1

    def undisturbed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call something of the engine that runs users' code on its way; meanwhile nothing else may change."""
        self.busy += 1
        try:
            return function(*arguments)
        finally:
            self.busy -= 1

    def refuse_change(self) -> None:
        """Raise what a change raises that comes from users' code in the middle of another operation."""
        raise LifecycleError(
            "state was changed, read for change, or a snapshot taken, by the code of a key or of a value while the "
            "engine compared, hashed, copied or dropped it. Take that out of the class's `__eq__`, `__hash__`, "
            "`__reduce__` or `__del__`: state is changed by functions."
        )

    # -- any thread ------------------------------------------------------------------------------------------

    def release(self, snapshot: Snapshot) -> None:
        """Release `snapshot`; see the module's text for who does the work."""
        self._check_mine(snapshot)
        with self.lock:
            if snapshot.released:
                return
            snapshot.released = True
            snapshot.frozen.clear()  # complete by itself: no other snapshot looks through it
            if threading.get_ident() == self.owner and not self.busy:
                self._merge_released()
            else:
                self._drop_oldest()
            self._moved()

    def check_live(self, snapshot: Snapshot) -> None:
        """Raise unless `snapshot` is one of this registry's and was not released."""
        self._check_mine(snapshot)
        snapshot.check_live()

    def live_snapshots(self) -> int:
        """How many snapshots were not released; `live` has the others too, until the owner's thread merges them."""
        with self.lock:
            return sum([not snapshot.released for snapshot in self.live])

    def branched(self) -> bool:
        """Whether a live snapshot sees a future that a roll-back took away."""
        return len(self.orphans) > 0

    # -- under the lock --------------------------------------------------------------------------------------

    def _check_mine(self, snapshot: Snapshot) -> None:
        if snapshot.registry is not self:
            raise ValueError(f"snapshot {snapshot.version} belongs to another registry: use it there")

    def _moved(self) -> None:
        self.required = self.live[-1].version if self.live else 0
        if self.orphans:
            self.orphans.intersection_update([snapshot.version for snapshot in self.live])
        self.epoch += 1

    def _drop_oldest(self) -> None:
        while self.live and self.live[0].released:
            snapshot = self.live.pop(0)
            for image in snapshot.images:
                image.map.unlink_image(image)
                for side in image.sides:
                    side.forget()
            snapshot.images.clear()

    def _merge_released(self) -> None:
        self._drop_oldest()
        for position in range(len(self.live) - 1, 0, -1):
            snapshot = self.live[position]
            if snapshot.released:
                del self.live[position]
                older = self.live[position - 1]
                for image in snapshot.images:
                    if image.map.merge_image(image, older.version):
                        older.images.append(image)
                snapshot.images.clear()

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the invariants of the module's text hold."""
        versions = [snapshot.version for snapshot in self.live]
        if versions != sorted(set(versions)) or (versions and versions[-1] > self.version):
            raise InvariantError(f"live snapshots {versions} do not ascend up to version {self.version}")
        if self.required != (versions[-1] if versions else 0):
            raise InvariantError(f"required is {self.required}, live snapshots are {versions}")
        for snapshot in self.live:
            for image in snapshot.images:
                if image.version != snapshot.version:
                    raise InvariantError(f"image of version {image.version} in snapshot {snapshot.version}")
        if not self.orphans <= set(versions):
            raise InvariantError(f"orphans {self.orphans} are not all live: {versions}")
