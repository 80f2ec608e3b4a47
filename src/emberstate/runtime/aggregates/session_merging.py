# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""`merge_sessions`: partial rows of many keys into the sessions that these keys have, in one compiled pass.

It computes which sessions there are afterwards and what goes into which of them, from bounds and times alone; the
caller folds the records. A partial row does what it does in `MergingWindowFunction`: it joins all sessions that it
overlaps or touches and that are not cleaned up at its moment, and is late if even the whole is past.

Thread safety: functions of their arguments.
"""

from __future__ import annotations

import dataclasses

try:
    import cython
except ImportError:
    from emberstate import _cython as cython
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Sessions:
    """Sessions by key, and by start within a key; `offsets` has where each key's begin, and how many there are.

    `phases` are 0 while a session waits for its end, 1 when it has fired, 2 when it is to be emitted again.
    """

    offsets: Ints
    starts: Ints
    ends: Ints
    phases: Ints


@dataclasses.dataclass(frozen=True)
class MergedSessions(Sessions):
    """What became of sessions and partial rows."""

    #: The earlier session that a session goes on from, -1 if it is new.
    firsts: Ints
    #: Which session each of the earlier ones is now, or is part of.
    old: Ints
    #: Which session each partial row is in, -1 if it is late.
    rows: Ints


def merge_sessions(
    known: Sessions, row_offsets: Ints, row_starts: Ints, row_ends: Ints, row_nows: Ints, lateness: cython.longlong
) -> MergedSessions:
    """Merge partial rows, by key and in their order within it, at the event time `row_nows` of each.

    >>> ints = lambda *numbers: np.array(numbers, np.int64)
    >>> known = Sessions(ints(0, 2), ints(0, 20), ints(10, 30), ints(0, 0))
    >>> merged = merge_sessions(known, ints(0, 2), ints(5, 40), ints(15, 50), ints(5, 40), 0)
    >>> merged.starts.tolist(), merged.ends.tolist(), merged.rows.tolist()
    ([0, 20, 40], [15, 30, 50], [0, 2])
    """
    keys: cython.Py_ssize_t = len(row_offsets) - 1
    old_count: cython.Py_ssize_t = len(known.starts)
    row_count: cython.Py_ssize_t = len(row_starts)
    total: cython.Py_ssize_t = old_count + row_count
    # A session's identity is the number of the one that it began as: an old one, or a row's behind those.
    offsets = np.zeros(keys + 1, np.int64)
    starts, ends, phases = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    identities, parents = np.empty(total, np.int64), np.arange(total, dtype=np.int64)
    numbers, rows = np.full(total, -1, np.int64), np.full(row_count, -1, np.int64)
    old_at: cython.const[cython.longlong][::1] = known.offsets.data  # type: ignore[valid-type]
    old_start: cython.const[cython.longlong][::1] = known.starts.data  # type: ignore[valid-type]
    old_end: cython.const[cython.longlong][::1] = known.ends.data  # type: ignore[valid-type]
    old_phase: cython.const[cython.longlong][::1] = known.phases.data  # type: ignore[valid-type]
    row_at: cython.const[cython.longlong][::1] = row_offsets.data  # type: ignore[valid-type]
    begin: cython.const[cython.longlong][::1] = row_starts.data  # type: ignore[valid-type]
    finish: cython.const[cython.longlong][::1] = row_ends.data  # type: ignore[valid-type]
    nows: cython.const[cython.longlong][::1] = row_nows.data  # type: ignore[valid-type]
    at: cython.longlong[::1] = offsets.data
    start: cython.longlong[::1] = starts.data
    end: cython.longlong[::1] = ends.data
    phase: cython.longlong[::1] = phases.data
    identity: cython.longlong[::1] = identities.data
    parent: cython.longlong[::1] = parents.data
    number: cython.longlong[::1] = numbers.data
    joined: cython.longlong[::1] = rows.data
    key: cython.Py_ssize_t
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    first: cython.Py_ssize_t
    behind: cython.Py_ssize_t
    base: cython.Py_ssize_t = 0
    top: cython.Py_ssize_t = 0  # sessions so far: those of the key at hand are [base, top)
    new_start: cython.longlong
    new_end: cython.longlong
    for key in range(keys):
        base = top
        for i in range(old_at[key], old_at[key + 1]):
            start[top], end[top], phase[top], identity[top] = old_start[i], old_end[i], old_phase[i], i
            top += 1
        for row in range(row_at[key], row_at[key + 1]):
            new_start, new_end = begin[row], finish[row]
            first = top
            while first > base and end[first - 1] >= new_start:
                first -= 1
            while first < top and end[first] + lateness <= nows[row]:  # cleaned up before this row came
                first += 1
            behind = first
            while behind < top and start[behind] <= new_end:
                behind += 1
            if behind > first:
                new_start = min(new_start, start[first])
                new_end = max(new_end, end[behind - 1])
            if new_end + lateness <= nows[row]:
                continue
            if behind == first:
                i = top
                while i > first:
                    start[i], end[i], phase[i], identity[i] = start[i - 1], end[i - 1], phase[i - 1], identity[i - 1]
                    i -= 1
                identity[first] = old_count + row
                top += 1
            else:
                for i in range(first + 1, behind):
                    parent[identity[i]] = identity[first]
                for i in range(behind, top):
                    row_shift: cython.Py_ssize_t = i - behind + first + 1
                    start[row_shift], end[row_shift] = start[i], end[i]
                    phase[row_shift], identity[row_shift] = phase[i], identity[i]
                top -= behind - first - 1
            start[first], end[first] = new_start, new_end
            phase[first] = 0 if new_end > nows[row] else 2
            joined[row] = identity[first]
        at[key + 1] = top
        for i in range(base, top):
            number[identity[i]] = i
    for i in range(total):
        if number[i] < 0 and parent[i] != i:
            first = parent[i]
            while parent[first] != first:
                first = parent[first]
            number[i] = number[first]
    for row in range(row_count):
        if joined[row] >= 0:
            joined[row] = number[joined[row]]
    firsts = np.where(identities[:top] < old_count, identities[:top], -1)
    return MergedSessions(
        offsets, starts[:top], ends[:top], phases[:top], firsts=firsts, old=numbers[:old_count], rows=rows
    )
