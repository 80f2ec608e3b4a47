"""`FaultyFileSystem`: applies a plan of faults to the system calls of `LocalStorage`, and models power loss.

It computes what a power loss can leave: the tree of the last sync, with any subset of the later changes.

Thread safety: any thread. A lock guards the record of the file system; no call holds it while it waits at a gate or
while its plan acts.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from emberstate.storage.file_system import FileSystem
from emberstate.testing.faults import FaultPlan

T = TypeVar("T")
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
