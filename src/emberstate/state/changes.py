"""Change records: what changed in one entry of a keyed state since a snapshot. A commit writes them.

A record is ordered; applying it to the old content gives the new content. `CLEARED`, if present, comes first (so a map
that was cleared and filled again does not merge with its old content), then user keys put or removed, or elements
appended. A plain value is `REPLACED` as a whole.

>>> apply_ops({"a": 1, "b": 2}, ((Op.REMOVED, "a"), (Op.PUT, "c", 3)))
{'b': 2, 'c': 3}
>>> apply_ops(ABSENT, ((Op.APPENDED, [1, 2]),))
[1, 2]
>>> apply_ops([1, 2], ((Op.CLEARED,),))
ABSENT
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final


class Absent(enum.Enum):
    """No state at all, as opposed to a state that is None."""

    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent.ABSENT


class Op(enum.IntEnum):
    """One step of a change record; the comments name the operands that follow it in its tuple."""

    REPLACED = 1  # value
    CLEARED = 2  # nothing
    PUT = 3  # user key, user value
    REMOVED = 4  # user key
    APPENDED = 5  # list of elements


#: One entry's change: key, namespace, steps in order.
EntryChange = tuple[Any, Any, tuple[tuple[Any, ...], ...]]


def apply_ops(old: Any, ops: Iterable[tuple[Any, ...]]) -> Any:
    """Return `old` (a value, list or dict, or ABSENT) with `ops` applied; `old` is not changed.

    Operations may be plain ints, as read from a file; an unknown one raises ValueError.
    """
    content = old
    owned = False  # whether `content` is a container made here
    for number, *operands in ops:
        op = Op(number)
        if op is Op.REPLACED or op is Op.CLEARED:
            content, owned = (operands[0] if op is Op.REPLACED else ABSENT), False
            continue
        if not owned:
            empty: Any = [] if op is Op.APPENDED else {}
            content = empty if content is ABSENT else content.copy()
            owned = True
        if op is Op.APPENDED:
            content.extend(operands[0])
        elif op is Op.PUT:
            content[operands[0]] = operands[1]
        else:
            del content[operands[0]]
    return content
