# cython: boundscheck=False, wraparound=False
"""The current key of a backend, and the key group it belongs to.

Keys come in here and nowhere else, so here their type is checked: 1, 1.0 and True are never one key, because
only one of them is of the declared type.

Invariants: `position` is the key group's place in the owned range, -1 while no key is set; a key that is
refused leaves the context as it was; a closed context has no key and owns nothing, for good.

Thread safety: one owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

from emberstate.errors import KeyContextError, KeyGroupError
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism

#: Of the keys that come with their group, one in this many has its group computed again.
CHECK_EVERY = 256


class KeyContext:
    """Which key the states of a backend are about."""

    __slots__ = (
        "closed",
        "grouper",
        "groups",
        "key",
        "key_group_range",
        "key_schema",
        "max_parallelism",
        "normalise",
        "position",
        "start",
        "unchecked",
    )

    key: Any
    position: int
    key_schema: KeySchema
    key_group_range: KeyGroupRange
    max_parallelism: int
    start: int
    groups: int
    grouper: Callable[[Any], int]
    normalise: Callable[[Any], Any]
    unchecked: int
    closed: bool

    def __init__(
        self, key_schema: KeySchema, max_parallelism: int, key_group_range: KeyGroupRange
    ) -> None:
        check_max_parallelism(max_parallelism)
        if len(key_group_range) == 0 or key_group_range.end >= max_parallelism:
            raise KeyGroupError(
                f"key groups {key_group_range} are not a part of 0 to {max_parallelism - 1}: "
                f"use range_for_slot(max_parallelism, parallelism, slot)"
            )
        self.key_schema = key_schema
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self.start = key_group_range.start
        self.groups = len(key_group_range)
        self.grouper = key_schema.key_grouper(max_parallelism)
        self.normalise = key_schema.normalise
        self.key = None
        self.position = -1
        self.unchecked = 0
        self.closed = False

    def set_current_key(self, key: Any) -> None:
        """Make `key` the current one; refuses a wrong type, and a key of a group that is not owned."""
        key = self.normalise(key)
        self._move_to(key, self.grouper(key))

    def set_current_key_and_group(self, key: Any, key_group: cython.Py_ssize_t) -> None:
        """As `set_current_key`, for a canonical key whose group somebody else computed.

        Checked now and then.
        """
        self.unchecked += 1
        if self.unchecked >= CHECK_EVERY:
            self.unchecked = 0
            self.key_schema.check(key)
            self.check_group(key, key_group)
        self._move_to(key, key_group)

    def clear(self) -> None:
        """Have no current key: using state is an error from here on."""
        self.key = None
        self.position = -1

    def close(self) -> None:
        """Have no current key ever again."""
        self.clear()
        self.closed = True
        self.groups = 0  # so that every key is refused, at no cost to those that are not

    def check_open(self) -> None:
        """Raise `KeyContextError` if the context was closed."""
        if self.closed:
            raise KeyContextError("the backend is closed: its state cannot be used any more")

    @property
    def key_group(self) -> int:
        """The key group of the current key."""
        if self.position < 0:
            self.refuse("key_group")
        return self.start + self.position

    def check_still(self, key: Any) -> None:
        """Raise unless `key`, with which an iteration began, is still the current one."""
        if self.position < 0 or not (self.key is key or self.key == key):
            self.check_open()
            raise KeyContextError(
                f"an iteration over state of key {key!r} was continued when that was not the current key any "
                f"more: finish it while the same row or timer is handled, or collect with list() first."
            )

    def check_group(self, key: Any, key_group: int) -> None:
        """Raise unless `key_group` is what the key's hash gives."""
        computed = self.grouper(key)
        if computed != key_group:
            raise KeyGroupError(
                f"key {key!r} came with key group {key_group}, its hash gives {computed} of "
                f"{self.max_parallelism}. Likely causes: another max parallelism or key schema on the "
                f"sending side (here {self.key_schema.type_names}), or a key changed after it was hashed."
            )

    def refuse(self, what: str) -> None:
        """Say that there is no current key."""
        self.check_open()
        raise KeyContextError(
            f"{what!r} was used without a current key. State belongs to a key: use it while a row or timer "
            f"of that key is handled, or call set_current_key() first."
        )

    def _move_to(self, key: Any, key_group: cython.Py_ssize_t) -> None:
        position: cython.Py_ssize_t = key_group - self.start
        if position < 0 or position >= self.groups:
            self.check_open()
            raise KeyGroupError(
                f"key {key!r} belongs to key group {key_group}, but {self.key_group_range} is owned here. "
                f"Likely causes: the row was sent to the wrong slot, or the key is not deterministic (it "
                f"hashes differently each time it is computed)."
            )
        self.key = key
        self.position = position
