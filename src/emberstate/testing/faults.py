"""Fault injection for storage: in the tests of this library, and of pipelines built on it.

- `FaultPlan` lists the faults: an error before or after a call takes effect (after: the reply is lost), a call held at
  a gate, a torn write, a kill.
- `FaultyStorage` applies a plan to the calls of any storage.
- `FaultyFileSystem` applies a plan to the system calls of `LocalStorage`. It also computes what a power loss can leave:
  the tree of the last sync, with any subset of the later changes.

A point is `before-` or `after-` followed by an operation, such as `after-link` or `before-create_if_absent`. If the
environment variable EMBERSTATE_KILL_POINT names a point, the process kills itself there with SIGKILL; `point:n` means
the n-th time. Only plans read the variable, and production code has no plan.

Thread safety: that of the wrapped storage. Rules may be added to a plan in use. A lock guards the record of a file
system; no call holds it while it waits at a gate or while its plan acts.
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

from emberstate.errors import StorageError
from emberstate.storage.base import as_parts, explain
from emberstate.storage.interface import BytesLike, Paths, Storage, StorageOutcomeUnknownError, StorageStatistics
from emberstate.storage.local import FileSystem

T = TypeVar("T")
When = Literal["before", "after"]

KILL_POINT = "EMBERSTATE_KILL_POINT"
_WRITES = ("write_new", "create_if_absent")


class SimulatedKill(BaseException):
    """Simulates the death of the process: later calls have no effect."""


class Gate:
    """Holds a call: the test waits for `reached`, acts, then sets `opened`. Raises `TimeoutError` after `seconds`."""

    def __init__(self, seconds: float = 300.0) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._seconds = seconds

    def __call__(self) -> None:
        self.reached.set()
        if not self.opened.wait(self._seconds):
            raise TimeoutError(errno.ETIMEDOUT, f"the test did not open the gate within {self._seconds} s")


@dataclass
class _Rule:
    operation: str | None
    path: re.Pattern[str]
    when: When
    act: Callable[[], None]
    wait: int  # matching calls until the rule acts
    forever: bool
    keep: int | None = None  # torn write: the number of bytes that become visible


class FaultPlan:
    """A list of faults. A rule without an operation matches every operation; `path` is a regular expression."""

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
        """Raise `error` at the n-th matching call, and with `forever` at all later ones; an int is an errno."""
        self._add(operation, path, when, lambda: _throw(error), nth, forever)

    def hold(
        self, gate: Gate, *, operation: str | None = None, path: str = "", nth: int = 1, when: When = "before"
    ) -> None:
        """Hold the n-th matching call at a gate."""
        self._add(operation, path, when, gate, nth, False)

    def tear(self, keep: int, *, operation: str = "write_new", path: str = "", nth: int = 1) -> None:
        """Write only the first `keep` bytes at the n-th matching call, then raise EIO."""
        self._add(operation, path, "before", lambda: _throw(errno.EIO), nth, False, keep)

    def kill_at(self, point: str, *, path: str = "", nth: int = 1) -> None:
        """Raise `SimulatedKill` at a point; later calls have no effect."""
        self._at(point, lambda: _throw(SimulatedKill(point)), nth, path)

    def around(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        """Run `effect` with the faults that the plan has for this call; `torn(n)` writes the first n bytes only."""
        with self._lock:
            self.calls.append((operation, path))
        self._act(operation, path, "before", torn)
        result = effect()
        self._act(operation, path, "after", None)
        return result

    def _at(self, point: str, act: Callable[[], None], nth: int, path: str = "") -> None:
        when, _, operation = point.partition("-")
        if when not in ("before", "after") or not operation:
            raise ValueError(f"expected a point such as after-link or before-write_new, got {point!r}")
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
                raise SimulatedKill("the simulated process is dead")
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
                with self._lock:
                    self.dead = True
                raise


def _throw(error: int | BaseException) -> None:
    raise OSError(error, os.strerror(error)) if isinstance(error, int) else error


class FaultyStorage(Storage):
    """Wraps a storage and applies a plan. The operations are the names of the methods."""

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
        for path in paths:  # one by one: if one fails, the earlier ones are deleted
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
            raise explain(error, f"{operation} {path} in {self.describe()}", kind, path=path or None) from error


_Entry = int | Literal["directory"] | None  # what a name refers to: a file by its number, a directory, nothing


class FaultyFileSystem(FileSystem):
    """Applies a plan to the real file system, and records what was synced.

    The operations are the names of the methods. Files that exist below `root` at first count as durable. Syncs are
    recorded but not executed, so tests do not wait for a disk.

    A power loss is modelled as badly as POSIX allows: fsync of a file makes its bytes durable, fsync of a directory its
    names. Any other change may be lost, in any order; only the changes of one name keep their order.
    """

    def __init__(self, root: str | os.PathLike[str], plan: FaultPlan | None = None) -> None:
        self.plan = FaultPlan() if plan is None else plan
        self._root = Path(os.path.realpath(root))
        self._lock = threading.Lock()  # guards all below: a change and its record are one step
        self._opened: dict[int, Path] = {}
        self._numbers: dict[int, int] = {}  # number of a file by inode; the system reuses inodes, never numbers
        self._synced: dict[int, bytes] = {}  # bytes of a file at its last fsync
        self._content: dict[int, bytes] = {}  # bytes of a file now
        self._names: dict[Path, list[_Entry]] = {}  # what a name referred to since the last sync of its directory
        for path in [self._root, *self._root.rglob("*")] if self._root.exists() else []:
            self._names[path] = ["directory"]
            if path.is_file():
                inode = path.stat().st_ino  # hard links share it
                number = self._numbers[inode] if inode in self._numbers else self._new_file(inode)
                self._synced[number] = self._content[number] = path.read_bytes()
                self._names[path] = [number]

    def make_directory(self, path: Path, mode: int) -> None:
        def effect() -> None:
            FileSystem.make_directory(self, path, mode)
            self._became(path, "directory")

        self._do("make_directory", str(path), effect)

    def create(self, path: Path, mode: int) -> int:
        def effect() -> int:
            file = FileSystem.create(self, path, mode)
            self._opened[file] = path
            self._became(path, self._new_file(os.fstat(file).st_ino))
            return file

        return self._do("create", str(path), effect)

    def write(self, file: int, data: memoryview) -> int:
        def effect(keep: int | None = None) -> int:
            written = os.write(file, data[:keep])
            self._content[self._numbers[os.fstat(file).st_ino]] += data[:written]
            return written

        return self._do("write", str(self._path_of(file)), effect, effect)

    def fsync(self, file: int) -> None:
        def effect() -> None:
            number = self._numbers.get(os.fstat(file).st_ino)
            if number is not None:
                self._synced[number] = self._content[number]

        self._do("fsync", str(self._path_of(file)), effect)

    def close(self, file: int) -> None:
        with self._lock:
            path = self._opened.pop(file, None)
            os.close(file)  # even if the plan fails the call: the test process must not run out of descriptors
        self.plan.around("close", str(path), lambda: None)

    def link(self, source: Path, target: Path) -> None:
        def effect() -> None:
            target.hardlink_to(source)
            self._became(target, self._names[source][-1])

        self._do("link", str(target), effect)

    def unlink(self, path: Path) -> None:
        def effect() -> None:
            path.unlink()
            self._became(path, None)

        self._do("unlink", str(path), effect)

    def open_directory(self, path: Path) -> int:
        def effect() -> int:
            directory = FileSystem.open_directory(self, path)
            self._opened[directory] = path
            return directory

        return self._do("open_directory", str(path), effect)

    def fsync_directory(self, directory: int) -> None:
        folder = self._path_of(directory)

        def effect() -> None:
            for name, stood_for in self._names.items():
                if name.parent == folder:
                    del stood_for[:-1]

        self._do("fsync_directory", str(folder), effect)

    def every_crash(self) -> Iterator[dict[str, bytes]]:
        """Yield every tree, as contents by path, that a power loss could leave now. Exponential in the changes."""
        names, files = self._options()
        for entries in itertools.product(*names.values()):
            for contents in itertools.product(*files.values()):
                yield self._tree(
                    dict(zip(names, entries, strict=True)), dict(zip(files, contents, strict=True))
                )

    def crash(
        self, into: Path, rng: random.Random, unsynced: Literal["lost", "kept", "either"] = "either"
    ) -> None:
        """Write one such tree into a new directory: the root after a restart."""

        def pick(options: Sequence[T]) -> T:
            if unsynced == "either":
                return rng.choice(options)
            return options[0] if unsynced == "lost" else options[-1]

        names, files = self._options()
        tree = self._tree({n: pick(o) for n, o in names.items()}, {i: pick(o) for i, o in files.items()})
        into.mkdir(parents=True, exist_ok=True)
        for path, content in tree.items():
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_bytes(content)

    def _do(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        def carry_out() -> T:
            with self._lock:
                return effect()

        def tear(keep: int) -> None:
            if torn is not None:
                with self._lock:
                    torn(keep)

        return self.plan.around(operation, path, carry_out, tear)

    def _path_of(self, file: int) -> Path | None:
        with self._lock:
            return self._opened.get(file)

    def _new_file(self, inode: int) -> int:
        number = self._numbers[inode] = len(self._content)
        self._synced[number] = self._content[number] = b""
        return number

    def _became(self, path: Path, entry: _Entry) -> None:
        self._names.setdefault(path, [None]).append(entry)

    def _options(self) -> tuple[dict[Path, list[_Entry]], dict[int, list[bytes]]]:
        """Return what may be left of each name and each file: the durable state first, the current one last."""
        files = {}
        with self._lock:
            for number, content in self._content.items():
                durable = self._synced[number]
                late = len(content) - len(durable)
                torn = [content[: len(durable) + late // 2], durable + bytes(late)]  # cut off; or all zeros
                files[number] = [durable, *torn, content] if late else [content]
            return {name: list(self._names[name]) for name in sorted(self._names)}, files

    def _tree(self, names: dict[Path, _Entry], files: dict[int, bytes]) -> dict[str, bytes]:
        tree = {}
        gone: set[Path] = set()
        for name, entry in names.items():  # sorted, so parents come before their children
            if name.parent in gone or entry is None:
                gone.add(name)
            elif isinstance(entry, int):
                tree[str(name.relative_to(self._root))] = files[entry]
        return tree
