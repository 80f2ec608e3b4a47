"""Storage in a dict, for `MemoryStateBackend` and tests. It lives as long as the object."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from emberstate.storage.base import BaseStorage
from emberstate.storage.interface import Paths


class MemoryStorage(BaseStorage):
    """Files in memory. Durable means visible here: nothing outlives the process.

    >>> storage = MemoryStorage()
    >>> storage.create_if_absent("claims/1", b"mine"), storage.create_if_absent("claims/1", b"yours")
    (True, False)
    >>> storage.read("claims/1")
    b'mine'
    """

    shared = False

    def __init__(self, *, writer: str | None = None) -> None:
        super().__init__(writer)
        self._files: dict[str, bytes] = {}  # guarded by _lock

    def describe(self) -> str:
        return "memory://"

    def _put_new(self, path: str, parts: Sequence[memoryview]) -> None:
        data = b"".join(parts)
        with self._lock:
            if self._files.setdefault(path, data) is data:
                return
        raise self._taken(path)

    def _get(self, path: str, limit: int | None) -> bytes:
        with self._lock:
            data = self._files.get(path)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file")
        if limit is not None and len(data) > limit:
            raise self._too_large(path, len(data), limit)
        return data

    def _get_range(self, path: str, offset: int, length: int) -> bytes:
        data = self._get(path, None)
        if offset + length > len(data):
            raise self._too_short(path, len(data), offset, length)
        return data[offset : offset + length]

    def _size(self, path: str) -> int:
        return len(self._get(path, None))

    def _list(self, folder: str) -> Paths:
        with self._lock:
            return [path for path in self._files if not folder or path.startswith(folder + "/")]

    def _delete(self, paths: Sequence[str]) -> None:
        with self._lock:
            for path in paths:
                self._files.pop(path, None)
