"""Paths inside a storage: relative POSIX names of plain parts, which cannot lead outside it.

Thread safety: pure functions.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from emberstate.errors import StorageError

#: The first part of temporary files and probes. No path begins with it, and it is never listed.
TEMPORARY: Final = ".tmp"
#: Most file systems take 255 bytes for a name; S3 takes 1024 for a key, half of which is left to the prefix.
MAX_PART_BYTES: Final = 255
MAX_PATH_BYTES: Final = 512

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_path(path: str, what: str = "path") -> str:
    """Return the path if it can name a file inside a storage, else raise `StorageError`.

    >>> check_path("chk/00000012.manifest")
    'chk/00000012.manifest'
    >>> check_path("../secrets")
    Traceback (most recent call last):
    emberstate.errors.StorageError: [Errno 22] the path '../secrets' is rejected: it has a part '..'. ...
    """
    why = _objection(path)
    if why is not None:
        raise StorageError(
            errno.EINVAL,
            f"the {what} {path[:200]!r} is rejected: {why}. Use a relative name like 'chk/00000012.manifest'; if a "
            "checkpoint has this path, the checkpoint is damaged.",
            path=path[:200],
        )
    return path


def is_path(path: str) -> bool:
    """Return whether a storage can hold a file of this name."""
    return _objection(path) is None


def _objection(path: str) -> str | None:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it has characters that are not Unicode text"
    if len(encoded) > MAX_PATH_BYTES:
        return f"it has {len(encoded)} bytes, more than {MAX_PATH_BYTES}"
    if "\\" in path or _CONTROL.search(path):
        return "it has a backslash or a control character"
    parts = path.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            return f"it has a part {part!r}"
        if len(part.encode()) > MAX_PART_BYTES:
            return f"it has a part of more than {MAX_PART_BYTES} bytes"
    return f"{TEMPORARY} is reserved for temporary files" if parts[0] == TEMPORARY else None
