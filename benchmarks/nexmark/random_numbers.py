"""Random numbers without a sequence: a number is a function of the seed, the event and which draw of the event it is.

So events can be made in any order, in any parts and by any number of processes, and are the same. All of it is integer
arithmetic, which is the same everywhere. The function is SplitMix64's finaliser, applied to the seed, then with the
event, then with the draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.uint64]]

_STEP = np.uint64(0x9E3779B97F4A7C15)
#: Draws of letters are numbered from here, apart from those of fields; each field of text has so many.
_LETTERS, _BLOCKS = 1 << 16, 1 << 8


def _mixed(numbers: Numbers) -> Numbers:
    found = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


class Draws:
    """The draws of some events."""

    def __init__(self, seed: int, events: np.ndarray[Any, Any]) -> None:
        start = _mixed(np.array([seed], np.uint64) + _STEP)
        self._keys = _mixed(start + events.astype(np.uint64) * _STEP)

    def bits(self, draw: int) -> Numbers:
        """64 random bits for every event."""
        return _mixed(self._keys + np.array([draw + 1], np.uint64) * _STEP)

    def below(self, draw: int, limit: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A number from 0 up to `limit`, which is one number or one for every event, and less than 2³²."""
        product = (self.bits(draw) >> np.uint64(32)) * np.asarray(limit, np.uint64)
        return (product >> np.uint64(32)).astype(np.int64)

    def text(self, draw: int, shortest: Any, longest: Any) -> pa.Array:
        """Small letters; the length is between two limits, both included."""
        lengths = self.below(draw, np.asarray(longest) - shortest + 1) + shortest
        blocks = -(-int(np.max(lengths, initial=1)) // 8)
        assert blocks <= _BLOCKS
        numbers = np.arange(blocks, dtype=np.uint64) + np.uint64(_LETTERS + draw * _BLOCKS)
        bits = _mixed(self._keys[:, None] + numbers[None, :] * _STEP)
        random = bits.astype("<u8").view(np.uint8).reshape(len(lengths), blocks * 8)
        letters = ((random.astype(np.uint16) * np.uint16(26)) >> np.uint16(8)).astype(np.uint8) + np.uint8(ord("a"))
        data = letters[np.arange(blocks * 8)[None, :] < lengths[:, None]]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return pa.StringArray.from_buffers(len(lengths), pa.py_buffer(offsets), pa.py_buffer(data))
