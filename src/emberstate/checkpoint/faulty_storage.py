"""Storage that fails on purpose, for tests: of this library, and of pipelines built on it.

- `FaultPlan` says what goes wrong, and when: an error before or after the effect (after: the reply is lost),
  a call held at a gate, a torn write, a kill.
- `FaultyStorage` puts a plan around any storage, call by call.
- `FaultyFileSystem` puts one below `LocalStorage`, system call by system call, and knows what a power loss
  would leave: the tree as it was last synced, with any of the later changes, or none.

A point is `before-` or `after-` and an operation, such as `after-link` or `before-create_if_absent`. The
environment variable EMBERSTATE_KILL_POINT, a point or `point:n` for its n-th occurrence, ends the process
there by SIGKILL. Only a plan reads it; production code has no plan.

Thread safety: as the storage that is wrapped; plans may be extended while they are in use.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from emberstate.checkpoint.local_storage import FileSystem
from emberstate.checkpoint.storage import (
    BytesLike,
    Paths,
    Storage,
    StorageOutcomeUnknownError,
    StorageStatistics,
    as_parts,
    explain,
)
from emberstate.errors import StorageError

T = TypeVar("T")
When = Literal["before", "after"]

KILL_POINT = "EMBERSTATE_KILL_POINT"
_WRITES = ("write_new", "create_if_absent")


class SimulatedKill(BaseException):
    """The process is dead, as far as the storage can tell: nothing it does afterwards has an effect."""


class Gate:
    """Where a call is held: the test waits for `reached`, does what it wants, then sets `opened`."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._seconds = seconds

    def __call__(self) -> None:
        self.reached.set()
        if not self.opened.wait(self._seconds):
            raise TimeoutError(errno.ETIMEDOUT, "nobody opened the gate")


@dataclass
class _Rule:
    operation: str | None
    path: re.Pattern[str]
    when: When
    act: Callable[[], None]
    wait: int  # matching calls until it acts
    forever: bool
    keep: int | None = None  # of a torn write: how many bytes become visible


class FaultPlan:
    """What is to go wrong. A rule without an operation is for all; `path` is a regular expression."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.calls: list[tuple[str, str]] = []
        self.dead = False
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        if point := environment.get(KILL_POINT):
            name, _, nth = point.partition(":")
            self._at(name, lambda: os.kill(os.getpid(), signal.SIGKILL), int(nth or 1))

    def fail(
        self,
        error: int | BaseException,
        *,
        operation: str | None = None,
        path: str = "",
        nth: int = 1,
        when: When = "before",
        forever: bool = False,
    ) -> None:
        """Raise at the n-th matching call, once or from then on; an int is an errno."""
        self._add(operation, path, when, lambda: _throw(error), nth, forever)

    def hold(
        self, gate: Gate, *, operation: str | None = None, path: str = "", nth: int = 1, when: When = "before"
    ) -> None:
        """Hold the n-th matching call at a gate, without sleeping."""
        self._add(operation, path, when, gate, nth, False)

    def tear(self, keep: int, *, operation: str = "write_new", path: str = "", nth: int = 1) -> None:
        """Let only the first `keep` bytes of a write become visible, then raise EIO."""
        self._add(operation, path, "before", lambda: _throw(errno.EIO), nth, False, keep)

    def kill_at(self, point: str, *, path: str = "", nth: int = 1) -> None:
        """Raise `SimulatedKill` at a point; from then on no call has an effect."""
        self._at(point, lambda: _throw(SimulatedKill(point)), nth, path)

    def around(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        """Carry out a call with whatever the plan has for it."""
        with self._lock:
            self.calls.append((operation, path))
        self._act(operation, path, "before", torn)
        result = effect()
        self._act(operation, path, "after", None)
        return result

    def _at(self, point: str, act: Callable[[], None], nth: int, path: str = "") -> None:
        when, _, operation = point.partition("-")
        if when not in ("before", "after") or not operation:
            raise ValueError(f"{point!r} is no point; write after-link, before-write_new and the like")
        self._add(operation, path, "before" if when == "before" else "after", act, nth, False)

    def _add(
        self,
        operation: str | None,
        path: str,
        when: When,
        act: Callable[[], None],
        nth: int,
        forever: bool,
        keep: int | None = None,
    ) -> None:
        with self._lock:
            self._rules.append(_Rule(operation, re.compile(path), when, act, nth, forever, keep))

    def _act(self, operation: str, path: str, when: When, torn: Callable[[int], object] | None) -> None:
        due = []
        with self._lock:
            if self.dead:
                raise SimulatedKill("the process is dead already")
            for rule in self._rules:
                if rule.when == when and rule.operation in (None, operation) and rule.path.search(path):
                    rule.wait -= 1
                    if rule.wait == 0 or (rule.forever and rule.wait < 0):
                        due.append(rule)
        for rule in due:
            if rule.keep is not None and torn is not None:
                torn(rule.keep)
            try:
                rule.act()
            except SimulatedKill:
                self.dead = True
                raise


def _throw(error: int | BaseException) -> None:
    raise OSError(error, os.strerror(error)) if isinstance(error, int) else error


class FaultyStorage(Storage):
    """A storage around another, with a plan of faults. Operations are named as the methods are."""

    def __init__(self, inner: Storage, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self.plan = FaultPlan() if plan is None else plan
        self.shared = inner.shared

    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        whole = b"".join(as_parts(data))
        write = self.inner.write_new
        self._do("write_new", path, lambda: write(path, data), lambda keep: write(path, whole[:keep]))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        create = self.inner.create_if_absent
        return self._do(
            "create_if_absent", path, lambda: create(path, data), lambda keep: create(path, data[:keep])
        )

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        return self._do("read", path, lambda: self.inner.read(path, limit=limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._do("read_range", path, lambda: self.inner.read_range(path, offset, length))

    def size(self, path: str) -> int:
        return self._do("size", path, lambda: self.inner.size(path))

    def list(self, prefix: str = "") -> Paths:
        return self._do("list", prefix, lambda: self.inner.list(prefix))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:  # each may fail, and those before it are gone then
            self.delete(path)

    def ensure_durable(self, path: str) -> None:
        self._do("ensure_durable", path, lambda: self.inner.ensure_durable(path))

    def check_conditional_create(self) -> None:
        self._do("check_conditional_create", "", self.inner.check_conditional_create)

    def remove_leftovers(self, is_live: Callable[[str], bool]) -> int:
        return self._do("remove_leftovers", "", lambda: self.inner.remove_leftovers(is_live))

    def describe(self) -> str:
        return self.inner.describe()

    def statistics(self) -> StorageStatistics:
        return self.inner.statistics()

    def _do(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        done = False

        def carry_out() -> T:
            nonlocal done
            result = effect()
            done = True
            return result

        try:
            return self.plan.around(operation, path, carry_out, torn)
        except StorageError:
            raise
        except OSError as error:
            kind = StorageOutcomeUnknownError if done and operation in _WRITES else StorageError
            raise explain(error, f"{operation} {path} in {self.describe()}", kind) from error


_Entry = int | Literal["directory"] | None  # what a name stands for: an inode, a directory, nothing


class FaultyFileSystem(FileSystem):
    """The real file system, with a plan of faults, and a record of what has been synced.

    Operations are named as the methods are. What stands below `root` at first counts as durable. Syncs are
    recorded and not carried out: no test need wait for a disk.

    The model of a power loss is the harshest that POSIX allows: bytes are durable by fsync of their file,
    names by fsync of their directory, and of all else any part may be lost, in any order. Only the changes of
    one name stay in order among themselves.
    """

    def __init__(self, root: str | os.PathLike[str], plan: FaultPlan | None = None) -> None:
        self.plan = FaultPlan() if plan is None else plan
        self._root = Path(os.path.realpath(root))
        self._opened: dict[int, Path] = {}
        self._synced: dict[int, bytes] = {}  # inode: its bytes at the last fsync
        self._content: dict[int, bytes] = {}  # inode: its bytes
        self._names: dict[Path, list[_Entry]] = {}  # what it stood for, since the last sync of its directory
        for path in [self._root, *self._root.rglob("*")] if self._root.exists() else []:
            inode = path.stat().st_ino
            self._names[path] = ["directory" if path.is_dir() else inode]
            if path.is_file():
                self._synced[inode] = self._content[inode] = path.read_bytes()

    def make_directory(self, path: Path) -> None:
        def effect() -> None:
            path.mkdir()
            self._became(path, "directory")

        self.plan.around("make_directory", str(path), effect)

    def create(self, path: Path) -> int:
        def effect() -> int:
            file = FileSystem.create(self, path)
            inode = os.fstat(file).st_ino
            self._opened[file] = path
            self._synced[inode] = self._content[inode] = b""
            self._became(path, inode)
            return file

        return self.plan.around("create", str(path), effect)

    def write(self, file: int, data: memoryview) -> int:
        def effect(keep: int | None = None) -> int:
            written = os.write(file, data[:keep])
            self._content[os.fstat(file).st_ino] += data[:written]
            return written

        return self.plan.around("write", str(self._opened.get(file)), effect, effect)

    def fsync(self, file: int) -> None:
        def effect() -> None:
            inode = os.fstat(file).st_ino
            if inode in self._content:
                self._synced[inode] = self._content[inode]

        self.plan.around("fsync", str(self._opened.get(file)), effect)

    def close(self, file: int) -> None:
        path = self._opened.pop(file, None)
        os.close(file)  # whatever the plan says: the process that runs the tests must not run out of them
        self.plan.around("close", str(path), lambda: None)

    def link(self, source: Path, target: Path) -> None:
        def effect() -> None:
            target.hardlink_to(source)
            self._became(target, self._names[source][-1])

        self.plan.around("link", str(target), effect)

    def unlink(self, path: Path) -> None:
        def effect() -> None:
            path.unlink()
            self._became(path, None)

        self.plan.around("unlink", str(path), effect)

    def open_directory(self, path: Path) -> int:
        def effect() -> int:
            directory = FileSystem.open_directory(self, path)
            self._opened[directory] = path
            return directory

        return self.plan.around("open_directory", str(path), effect)

    def fsync_directory(self, directory: int) -> None:
        folder = self._opened[directory]

        def effect() -> None:
            for name, stood_for in list(self._names.items()):  # other threads add to them
                if name.parent == folder:
                    del stood_for[:-1]

        self.plan.around("fsync_directory", str(folder), effect)

    def every_crash(self) -> Iterator[dict[str, bytes]]:
        """Every tree, as contents by path, that a power loss could leave now. For few files only."""
        names, inodes = self._options()
        for entries in itertools.product(*names.values()):
            for contents in itertools.product(*inodes.values()):
                yield self._tree(
                    dict(zip(names, entries, strict=True)), dict(zip(inodes, contents, strict=True))
                )

    def crash(
        self, into: Path, rng: random.Random, unsynced: Literal["lost", "kept", "either"] = "either"
    ) -> None:
        """Write one such tree into a fresh directory, as the root after the restart."""

        def pick(options: Sequence[T]) -> T:
            if unsynced == "either":
                return rng.choice(options)
            return options[0] if unsynced == "lost" else options[-1]

        names, inodes = self._options()
        tree = self._tree({n: pick(o) for n, o in names.items()}, {i: pick(o) for i, o in inodes.items()})
        into.mkdir(parents=True, exist_ok=True)
        for path, content in tree.items():
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_bytes(content)

    def _became(self, path: Path, entry: _Entry) -> None:
        self._names.setdefault(path, [None]).append(entry)

    def _options(self) -> tuple[dict[Path, list[_Entry]], dict[int, list[bytes]]]:
        """For each name and each file what may be left of it: first what is durable, last what is there."""
        inodes = {}
        for inode, content in self._content.items():
            durable = self._synced[inode]
            late = len(content) - len(durable)
            torn = [content[: len(durable) + late // 2], durable + bytes(late)]  # cut off; or never written
            inodes[inode] = [durable, *torn, content] if late else [content]
        return {name: list(self._names[name]) for name in sorted(self._names)}, inodes

    def _tree(self, names: dict[Path, _Entry], inodes: dict[int, bytes]) -> dict[str, bytes]:
        tree = {}
        gone: set[Path] = set()
        for name, entry in names.items():  # parents come before what they hold
            if name.parent in gone or entry is None:
                gone.add(name)
            elif isinstance(entry, int):
                tree[str(name.relative_to(self._root))] = inodes[entry]
        return tree
