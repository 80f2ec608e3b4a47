"""The memory that a slot's machine or container has, which all processes there share.

Thread safety: pure functions.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

#: The limit of a container: cgroup 2, and 1.
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@functools.cache
def memory_limit() -> int:
    """The limit of the container, or the machine's memory, in bytes; 0 if unknown.

    >>> memory_limit() > 1 << 20
    True
    """
    total = _machine()
    limits = [limit for path in _LIMITS if (limit := _number(path)) is not None]
    return min([*limits, total]) if total else 0


def _machine() -> int:
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("MemTotal:")), 0)


def _number(path: str) -> int | None:
    """The number in a file; None if there is none, as in "max"."""
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
