"""The limits of a state file.

A reader trusts no number of a file. It compares what a file declares with these limits before it allocates memory, so
a damaged or hostile file costs little and raises `CorruptionError`. The writer stays far below them, and rejects a
value that no reader would accept.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from emberstate.state.declarations import MAX_STATES

#: Rows of a base's record batch: bounds what writing and reading hold at once.
BASE_BATCH_ROWS: Final = 64 * 1024

#: Rows after which a delta, which is one record batch otherwise, is split.
DELTA_BATCH_ROWS: Final = 4 * 1024 * 1024

#: Encoded bytes after which any batch is split; one row may exceed it.
BATCH_BYTES: Final = 64 * 1024 * 1024

#: The longest encoding of one key, namespace, user key or value.
MAX_CELL_BYTES: Final = 512 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class FileLimits:
    """What a reader accepts at most."""

    #: Footer with metadata and index: room for some 200,000 record batches.
    footer_bytes: int = 16 * 1024 * 1024
    #: Decompressed bytes of one record batch.
    batch_bytes: int = 1024 * 1024 * 1024
    #: Rows of one record batch.
    batch_rows: int = 16 * 1024 * 1024
    #: States and timer queues.
    states: int = MAX_STATES


DEFAULT_LIMITS: Final = FileLimits()
