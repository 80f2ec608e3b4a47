"""The checksum in manifests, in the first line of small files, and in state files.

Thread safety: pure functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def checksum(data: bytes | memoryview) -> str:
    """Return the BLAKE2b of 128 bits, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def checksum_of(parts: Iterable[bytes]) -> str:
    """Return the checksum of the parts joined."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
