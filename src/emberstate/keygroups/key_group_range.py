"""Ranges of key groups, and the assignment of ranges to slots (Flink's formulas).

Invariants
1. A range is inclusive at both ends. There is one empty range, ``KeyGroupRange.EMPTY``, written [0, -1].
2. For every max parallelism m >= parallelism p, the ranges of slots 0..p-1 are contiguous, disjoint,
   never empty and cover 0..m-1, and ``slot_for_key_group`` names the slot whose range holds the group.
3. The formulas are part of the storage format: changing them moves state between slots on restore.

Thread safety: values are immutable and functions are pure; everything may be shared.

Not here: which group a key belongs to (see ``key_schema``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import index
from typing import ClassVar, SupportsIndex

from emberstate.errors import StateDeclarationError

#: Groups a pipeline gets when it says nothing: enough to rescale to 128 slots, few enough to be cheap.
DEFAULT_MAX_PARALLELISM = 128

#: Most groups a pipeline can have: a group number always fits two bytes of a storage key.
MAX_PARALLELISM_CAP = 32_768


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """The key groups ``start`` to ``end``, both included.

    >>> owned = KeyGroupRange(43, 85)
    >>> len(owned), 43 in owned, 86 in owned
    (43, True, False)
    >>> owned.intersection(KeyGroupRange(80, 127))
    KeyGroupRange(start=80, end=85)
    """

    start: int
    end: int

    EMPTY: ClassVar[KeyGroupRange]

    def __post_init__(self) -> None:
        if type(self.start) is not int or type(self.end) is not int:
            raise StateDeclarationError(
                f"A key group range needs two ints, found {self.start!r} and {self.end!r}; pass plain ints."
            )
        if self.start == 0 and self.end == -1:
            return
        if not 0 <= self.start <= self.end < MAX_PARALLELISM_CAP:
            raise StateDeclarationError(
                f"Key group range [{self.start}, {self.end}] makes no sense: expected "
                f"0 <= start <= end < {MAX_PARALLELISM_CAP}. Use KeyGroupRange.of(start, end) where "
                f"start > end shall mean the empty range."
            )

    @classmethod
    def of(cls, start: int, end: int) -> KeyGroupRange:
        """Return [start, end], or ``EMPTY`` if start > end.

        >>> KeyGroupRange.of(3, 2) is KeyGroupRange.EMPTY
        True
        """
        if start < 0:
            what = f"A key group range cannot start at {start}: key groups count from 0."
            raise StateDeclarationError(what, option="start", found=start)
        return cls(start, end) if start <= end else cls.EMPTY

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def __contains__(self, key_group: SupportsIndex) -> bool:
        # index() takes numpy integers, which is how groups arrive from Arrow, and rejects 3.5 and "3".
        return self.start <= index(key_group) <= self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}]" if self else "[empty]"

    def group_at(self, position: int) -> int:
        """Return the group at ``position``, 0 being the first.

        >>> KeyGroupRange(43, 85).group_at(0)
        43
        """
        # Flink accepts position == size here and hands out a foreign group.
        if not 0 <= position < len(self):
            what = f"Key group range {self} of {len(self)} groups has no position {position}."
            raise StateDeclarationError(what, option="position", found=position)
        return self.start + position

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the groups that are in both ranges; ``EMPTY`` if there are none."""
        if not self or not other:
            return KeyGroupRange.EMPTY
        return KeyGroupRange.of(max(self.start, other.start), min(self.end, other.end))

    def check(self, key_group: SupportsIndex) -> None:
        """Refuse a key group outside this range.

        Raises:
            StateDeclarationError: the group is not owned here.

        >>> KeyGroupRange(0, 42).check(43)
        Traceback (most recent call last):
            ...
        emberstate.errors.StateDeclarationError: Key group 43 is not in the range [0, 42] owned here. ...
        """
        if key_group not in self:
            raise StateDeclarationError(
                f"Key group {index(key_group)} is not in the range {self} owned here. Either the key is not "
                f"deterministic (it was computed differently when the row was routed), or the row was routed "
                f"with another key schema, max parallelism or parallelism.",
                key_group=index(key_group),
            )


KeyGroupRange.EMPTY = KeyGroupRange(0, -1)


def check_max_parallelism(max_parallelism: int) -> None:
    """Refuse a max parallelism that is not an int in 1..32768."""
    if type(max_parallelism) is not int or not 1 <= max_parallelism <= MAX_PARALLELISM_CAP:
        raise StateDeclarationError(
            f"Max parallelism must be an int in 1..{MAX_PARALLELISM_CAP}, found {max_parallelism!r}.",
            option="max_parallelism",
            found=max_parallelism,
        )


def check_parallelism(max_parallelism: int, parallelism: int) -> None:
    """Refuse a parallelism that ``max_parallelism`` groups cannot serve."""
    check_max_parallelism(max_parallelism)
    if type(parallelism) is not int or parallelism < 1:
        what = f"Parallelism must be an int of at least 1, found {parallelism!r}."
        raise StateDeclarationError(what, option="parallelism", found=parallelism)
    if parallelism > max_parallelism:
        raise StateDeclarationError(
            f"Parallelism {parallelism} exceeds max parallelism {max_parallelism}: some slots would own no "
            f"key group. Use at most {max_parallelism} slots, or a larger max parallelism for a new state.",
            option="parallelism",
            expected=max_parallelism,
            found=parallelism,
        )


def default_max_parallelism(parallelism: int) -> int:
    """Return the max parallelism for a pipeline that starts with ``parallelism`` slots.

    The power of two at or above p + p // 2, at least 128, at most 32768: room to grow by half.

    >>> [default_max_parallelism(p) for p in (1, 85, 86, 171, 172, 32768)]
    [128, 128, 256, 256, 512, 32768]
    """
    check_parallelism(MAX_PARALLELISM_CAP, parallelism)
    # p + p // 2 and not 1.5 * p: 171 must give 256, as in Flink.
    power_of_two = 1 << (parallelism + parallelism // 2 - 1).bit_length()
    return min(max(power_of_two, DEFAULT_MAX_PARALLELISM), MAX_PARALLELISM_CAP)


def range_for_slot(max_parallelism: int, parallelism: int, slot: int) -> KeyGroupRange:
    """Return the key groups that slot ``slot`` of ``parallelism`` owns.

    >>> [str(range_for_slot(128, 3, slot)) for slot in range(3)]
    ['[0, 42]', '[43, 85]', '[86, 127]']
    """
    check_parallelism(max_parallelism, parallelism)
    if type(slot) is not int or not 0 <= slot < parallelism:
        raise StateDeclarationError(f"Slot must be an int in 0..{parallelism - 1}, found {slot!r}.", slot=slot)
    start = -(-slot * max_parallelism // parallelism)
    end = ((slot + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def slot_for_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """Return the slot that owns ``key_group``.

    >>> [slot_for_key_group(128, 3, group) for group in (42, 43, 127)]
    [0, 1, 2]
    """
    check_parallelism(max_parallelism, parallelism)
    if type(key_group) is not int or not 0 <= key_group < max_parallelism:
        raise StateDeclarationError(
            f"Key group must be an int in 0..{max_parallelism - 1}, found {key_group!r}.", key_group=key_group
        )
    return key_group * parallelism // max_parallelism
