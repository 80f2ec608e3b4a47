"""`TimerIndex`: timers in firing order, in short blocks, so that no operation stalls however many there are.

A sorted list cut into blocks, as in `sortedcontainers`; in addition each block has the times of its timers as an array
of 64-bit numbers. A search among a million timers reads two short arrays, where comparing the timers themselves would
miss the cache each time. Only timers of the same time are compared as a whole.

Invariants: blocks are not empty and hold at most `BLOCK` timers; timers ascend within blocks and from block to block,
none twice; `times` are those of the timers, `lasts` those of each block's last one.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import InvariantError

if not cython.compiled:  # compiled, these are C functions
    from bisect import bisect_left as left_of
    from bisect import bisect_right as right_of

#: Timers that a block holds at most; a full one is cut in two.
BLOCK = 1024

#: A tuple that begins with its time, in microseconds, and compares in firing order.
Indexed = tuple[Any, ...]


class TimerIndex:
    """Timers in firing order.

    >>> index = TimerIndex([(5, "bob"), (3, "ann")])
    >>> index.add((4, "cid"))
    >>> index.remove((3, "ann"))
    >>> list(index), index.pop_first(), len(index)
    ([(4, 'cid'), (5, 'bob')], (4, 'cid'), 1)
    """

    __slots__ = ("_blocks", "_lasts", "_size", "_times")

    _blocks: list[list[Indexed]]
    _times: list[array[int]]
    _lasts: array[int]
    _size: int

    def __init__(self, timers: Iterable[Indexed] = ()) -> None:
        """Hold `timers`, given in any order, each once."""
        everything = sorted(timers)
        half = BLOCK // 2  # room for more
        self._blocks = [everything[start : start + half] for start in range(0, len(everything), half)]
        self._times = [array("q", [timer[0] for timer in block]) for block in self._blocks]
        self._lasts = array("q", [times[-1] for times in self._times])
        self._size = len(everything)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Indexed]:
        return itertools.chain.from_iterable(self._blocks)

    def first(self) -> Indexed | None:
        """The timer that fires next, or None."""
        return self._blocks[0][0] if self._blocks else None

    def pop_first(self) -> Indexed:
        """Remove and return the timer that fires next; there must be one."""
        timer: Indexed = self._blocks[0][0]
        self._delete(0, 0)
        return timer

    def add(self, timer: Indexed) -> None:
        """Add a timer, which must not be there."""
        number: cython.Py_ssize_t = self._block_of(timer)
        if number == len(self._blocks):  # behind all others
            if not number:
                self._blocks.append([])
                self._times.append(array("q"))
                self._lasts.append(timer[0])
            number = len(self._blocks) - 1
        block: list[Indexed] = self._blocks[number]
        times = self._times[number]
        position: cython.Py_ssize_t = self._position_in(block, times, timer)
        block.insert(position, timer)
        times.insert(position, timer[0])
        self._lasts[number] = times[-1]
        self._size += 1
        if len(block) > BLOCK:
            self._cut(number)

    def remove(self, timer: Indexed) -> None:
        """Remove a timer, which must be there."""
        number: cython.Py_ssize_t = self._block_of(timer)
        if number < len(self._blocks):
            block: list[Indexed] = self._blocks[number]
            position: cython.Py_ssize_t = self._position_in(block, self._times[number], timer)
            if position < len(block) and block[position] == timer:
                self._delete(number, position)
                return
        raise InvariantError(f"cannot remove {timer!r} from the index of its queue: it is not there", expected=timer)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the module's invariants hold. O(timers)."""
        everything = list(self)
        if any(one >= other for one, other in itertools.pairwise(everything)):
            raise InvariantError("timers of an index do not ascend, or one is there twice")
        if not all(0 < len(block) <= BLOCK for block in self._blocks) or len(everything) != self._size:
            raise InvariantError(f"{self._size} timers in blocks of {[len(block) for block in self._blocks]}")
        if [list(times) for times in self._times] != [[timer[0] for timer in block] for block in self._blocks]:
            raise InvariantError("times beside the timers of an index are not theirs")
        if list(self._lasts) != [block[-1][0] for block in self._blocks]:
            raise InvariantError("times of the blocks of an index are not those of their last timers")

    def _block_of(self, timer: Indexed) -> int:
        """The first block that ends with this timer or a later one; the number of blocks if none does."""
        time: cython.longlong = timer[0]
        low: cython.Py_ssize_t = left_of(self._lasts, time)
        high: cython.Py_ssize_t = right_of(self._lasts, time, low)
        middle: cython.Py_ssize_t
        while low < high:  # blocks that end with the same time
            middle = (low + high) // 2
            if self._blocks[middle][-1] < timer:
                low = middle + 1
            else:
                high = middle
        return low  # type: ignore[no-any-return]  # to mypy a C integer is anything

    def _position_in(self, block: list[Indexed], times: array[int], timer: Indexed) -> int:
        """Return the position of the timer in a block, or where it would be inserted."""
        time: cython.longlong = timer[0]
        low: cython.Py_ssize_t = left_of(times, time)
        high: cython.Py_ssize_t = right_of(times, time, low)
        return low if low == high else bisect_left(block, timer, low, high)

    def _delete(self, number: cython.Py_ssize_t, position: cython.Py_ssize_t) -> None:
        block, times = self._blocks[number], self._times[number]
        del block[position]
        del times[position]
        self._size -= 1
        if block:
            self._lasts[number] = times[-1]
        else:
            del self._blocks[number]
            del self._times[number]
            del self._lasts[number]

    def _cut(self, number: cython.Py_ssize_t) -> None:
        block, times = self._blocks[number], self._times[number]
        half = len(block) // 2
        self._blocks.insert(number + 1, block[half:])
        self._times.insert(number + 1, times[half:])
        self._lasts.insert(number + 1, times[-1])
        del block[half:]
        del times[half:]
        self._lasts[number] = times[-1]
