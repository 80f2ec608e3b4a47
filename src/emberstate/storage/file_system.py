"""`FileSystem`: the calls by which `LocalStorage` changes a disk, so that tests can replace them.

Permissions are as asked for, whatever the umask.

Thread safety: no state; every method may be called from any thread.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


class FileSystem:
    """The calls that change a disk. Tests replace it to fail, lose or stop any of them."""

    def make_directory(self, path: Path, mode: int) -> None:
        path.mkdir(mode)
        made = stat.S_IMODE(path.stat().st_mode)
        if mode & ~made:  # removed by the umask
            path.chmod(made | mode)

    def create(self, path: Path, mode: int) -> int:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            made = stat.S_IMODE(os.fstat(file).st_mode)
            if mode & ~made:
                os.fchmod(file, made | mode)
        except BaseException:
            os.close(file)
            raise
        return file

    def write(self, file: int, data: memoryview) -> int:
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        os.fsync(file)

    def close(self, file: int) -> None:
        os.close(file)

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def open_directory(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def fsync_directory(self, directory: int) -> None:
        os.fsync(directory)
