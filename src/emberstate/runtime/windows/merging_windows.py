"""`MergingWindowSet`: the windows of a key that merge, and where the content of each is.

A session that grows keeps its content in the namespace of its first window, its state window. The set maps windows to
their state windows and is an ordinary state of the key; a row that extends a session changes one pair of it.

Invariants (per key): no two windows overlap or touch; each has its own state window, which is a part of it.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from emberstate.errors import InvariantError
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.state.descriptors import MapStateDescriptor
from emberstate.state.internal_states import InternalMapState

#: Where the set is kept: window → state window.
MERGING_WINDOWS = MapStateDescriptor("window-set", TimeWindow, TimeWindow)


class Merge(NamedTuple):
    """Result of adding a window: it is, or is part of, `window`, whose content is in `state_window`.

    If `window` was merged from old windows, they are in `merged`, and the content of all but the first of them is
    still in `merged_state_windows`; both in order of time.
    """

    window: TimeWindow
    state_window: TimeWindow
    merged: tuple[TimeWindow, ...] = ()
    merged_state_windows: tuple[TimeWindow, ...] = ()
    #: No window of the key overlaps it or touches it.
    is_new: bool = False


class MergingWindowSet:
    """The merging windows of the current key.

    >>> from emberstate import HeapKeyedStateBackend, KeySchema
    >>> backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    >>> windows = MergingWindowSet(backend.get_internal_state(MERGING_WINDOWS))
    >>> backend.set_current_key("ann")
    >>> windows.add(windows.merge_of(TimeWindow(0, 10)))
    >>> windows.add(windows.merge_of(TimeWindow(5, 15)))
    >>> windows.state_window(TimeWindow(0, 15))
    TimeWindow(start=0, end=10)
    """

    __slots__ = ("_windows",)

    def __init__(self, windows: InternalMapState) -> None:
        self._windows = windows

    def merge_of(self, window: TimeWindow) -> Merge:
        """Return what adding `window` would do; does not change the set. O(windows of the key)."""
        touched = [known for known in self._windows.keys() or () if known.intersects(window)]
        if not touched:
            return Merge(window, window, is_new=True)
        touched.sort()
        whole = window
        for known in touched:
            whole = whole.cover(known)
        states = [self._windows.get(known) for known in touched]
        if touched == [whole]:
            return Merge(whole, states[0])
        return Merge(whole, states[0], tuple(touched), tuple(states[1:]))

    def add(self, merge: Merge) -> None:
        """Apply `merge`, which `merge_of` has just returned."""
        for window in merge.merged:
            self._windows.remove(window)
        if merge.merged or merge.is_new:
            self._windows.put(merge.window, merge.state_window)

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Return the state window of a window, or None if the window is not in the set."""
        found: TimeWindow | None = self._windows.get(window)
        return found

    def window_with(self, part: TimeWindow) -> TimeWindow | None:
        """Return the window that has `part` in it, or None. O(windows of the key)."""
        known: TimeWindow
        for known in self._windows.keys() or ():
            if known.start <= part.start and part.end <= known.end:
                return known
        return None

    def retire(self, window: TimeWindow) -> None:
        """Remove a window from the set."""
        self._windows.remove(window)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if windows of the current key overlap or share a state window."""
        pairs = sorted(self._windows.items() or ())
        for (one, _), (other, _) in pairwise(pairs):
            if one.intersects(other):
                raise InvariantError(
                    f"{one} and {other} of one key overlap or touch and were not merged", found=(one, other)
                )
        if len({state for _, state in pairs}) != len(pairs):
            raise InvariantError(f"two windows of one key share a state window: {pairs}", found=pairs)
        for window, state in pairs:
            if window.cover(state) != window:
                what = f"the state window {state} is not a part of its window {window}"
                raise InvariantError(what, expected=window, found=state)
