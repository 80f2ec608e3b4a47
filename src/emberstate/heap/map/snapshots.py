"""Versions and live snapshots of one backend: counted once for all its maps, so that a snapshot is O(1).

`version` grows by one with every snapshot and changes in no other way. `required` is the version of the newest live
snapshot (0: none). The copy rule, everywhere: an entry or state whose version is below `required` is shared with a
snapshot, and is copied before it is changed or handed out for change. `epoch` changes with every snapshot, release and
roll-back; a map that finds a new epoch looks up its newest image (`CopyOnWriteBuckets.enter_epoch`).

*Loans.* The holder of a mutable value that was handed out or in may mutate it at any time. Before a snapshot is taken,
and before changes are listed, every lent value is sealed: put back if it is unchanged, else replaced by a copy. A
reference kept beyond that point reaches no state.

*User code.* Keys and states may be of a user's class, whose `==`, hash, copying or pickling may do anything. While the
engine runs such code in the middle of an operation, `busy` is not 0 and every change to a map of the registry is
rejected.

*Release* may come from any thread. The caller drops the oldest snapshot at once. Older snapshots read through any
other one, so the owner's thread merges it: now, or when it next takes a snapshot or rolls back.

Invariants: `live` ascends by version; every image is in the `images` of a live snapshot of the same version.

Thread safety: one owner thread changes maps, takes snapshots, lists changes and rolls back. Any thread may
read and release a snapshot. `lock` guards `live`, the chains of images, and a reader's page.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import InvariantError, LifecycleError

FIRST_VERSION = 1  # 0 is older than every snapshot: the version of a sealed state
MAX_VERSION = 2**32 - 2


class SnapshotPoint:
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
        """Release the snapshot, from any thread; a second call does nothing."""
        self.registry.release(self)

    def check_live(self) -> None:
        """Raise `LifecycleError` if the snapshot was released."""
        if self.released:
            raise LifecycleError(
                f"reading snapshot {self.version} failed: it was released, and what it saw may have changed since. "
                f"Keep it open while it is read (`with … as snapshot:`), or take a new one.",
                found="released",
            )

    def __enter__(self) -> SnapshotPoint:
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
        "busy",
        "epoch",
        "lenders",
        "listeners",
        "live",
        "lock",
        "orphans",
        "owner",
        "required",
        "synchronous",
        "version",
    )

    version: int
    required: int
    epoch: int
    live: list[SnapshotPoint]
    lock: threading.RLock
    lenders: list[Any]  # maps with values lent since the last seal
    synchronous: list[Any]  # maps that copy themselves when a snapshot is taken
    listeners: list[Any]  # told after a roll-back: `after_roll_back(snapshot)`
    orphans: set[int]  # versions of live snapshots that a roll-back left on a side branch
    owner: int
    busy: int  # nested calls of user code that the engine has made on the owner's thread

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

    def snapshot(self) -> SnapshotPoint:
        """Take a snapshot of every map: O(1), plus what was lent and not sealed yet."""
        if self.busy:
            self.refuse_change()
        self.seal()
        with self.lock:
            self.owner = threading.get_ident()
            self._merge_released()
            if self.version >= MAX_VERSION:
                raise InvariantError(
                    f"taking a snapshot failed: the version counter reached {MAX_VERSION}. "
                    f"Take a checkpoint and restart the process.",
                    expected=MAX_VERSION,
                    found=self.version,
                )
            snapshot = SnapshotPoint(self, self.version + 1)
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

    def roll_back(self, snapshot: SnapshotPoint) -> None:
        """Roll every map back to `snapshot`; costs as much as was touched since.

        The snapshot stays live and can be rolled back to again. Newer live snapshots stay readable, on a side
        branch. The version counter does not go back.
        """
        if self.busy:
            self.refuse_change()
        with self.lock:
            self.check_live(snapshot)
            self.owner = threading.get_ident()
            self._merge_released()
            self._moved()  # the maps below use `required`
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
        """Take back every value lent since the last call: later mutations by its holder reach no state."""
        if self.lenders:
            if self.busy:
                self.refuse_change()
            for lender in self.lenders:
                then = self.undisturbed(lender.seal_loans)
                if then is not None:  # a lender that is not a map, and has changes to make
                    then()
            self.lenders.clear()

    def touch(self) -> None:
        """Record that the calling thread changes maps: it merges released snapshots."""
        self.owner = threading.get_ident()

    # -- user code, on the owner's thread  ------------------------------------------------------------------

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two keys, or namespaces, are equal; changes are rejected meanwhile."""
        self.busy += 1
        try:
            return bool(one == other)
        finally:
            self.busy -= 1

    def hash_of(self, value: Any) -> int:
        """Return the hash of a key or a namespace; changes are rejected meanwhile."""
        self.busy += 1
        try:
            return hash(value)
        finally:
            self.busy -= 1

    def undisturbed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the engine that runs user code; other changes are rejected meanwhile."""
        self.busy += 1
        try:
            return function(*arguments)
        finally:
            self.busy -= 1

    def refuse_change(self) -> None:
        """Raise the error of a change that user code makes in the middle of another operation."""
        raise LifecycleError(
            "changing state failed: the change, read for change or snapshot came from the code of a key or value that "
            "the engine was comparing, hashing, copying or dropping. Change state in functions, not in a class's "
            "`__eq__`, `__hash__`, `__reduce__` or `__del__`.",
            found="a class's own code",
        )

    # -- any thread ------------------------------------------------------------------------------------------

    def release(self, snapshot: SnapshotPoint) -> None:
        """Release `snapshot`; the module's docstring says which thread does the work."""
        self._check_mine(snapshot)
        with self.lock:
            if snapshot.released:
                return
            snapshot.released = True
            snapshot.frozen.clear()  # no other snapshot reads through these copies
            if threading.get_ident() == self.owner and not self.busy:
                self._merge_released()
            else:
                self._drop_oldest()
            self._moved()

    def check_live(self, snapshot: SnapshotPoint) -> None:
        """Raise unless `snapshot` is one of this registry's and was not released."""
        self._check_mine(snapshot)
        snapshot.check_live()

    def live_snapshots(self) -> int:
        """Return how many snapshots are unreleased; `live` also has released ones that are not merged yet."""
        with self.lock:
            return sum([not snapshot.released for snapshot in self.live])

    def branched(self) -> bool:
        """Return whether a live snapshot is on a side branch that a roll-back left."""
        return len(self.orphans) > 0

    # -- under the lock --------------------------------------------------------------------------------------

    def _check_mine(self, snapshot: SnapshotPoint) -> None:
        if snapshot.registry is not self:
            raise ValueError(f"snapshot {snapshot.version} belongs to another registry. Use it there.")

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
        """Raise `InvariantError` unless the module's invariants hold."""
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
