"""Leaves out of a base file what had expired when its snapshot was taken. The live state is untouched.

Only content that no read could return is left out, so that restored and live state read the same. A state that shows
expired content until it is cleaned up is stored as it is.

Deltas are not filtered: they follow the live state. So a delta may remove a user key, or the last one of a map, that
the base before it has left out.

Thread safety: pure.

>>> from datetime import timedelta
>>> from emberstate.state.ttl.stamped import Stamped
>>> entries = [("ann", "", [Stamped("old", 0), Stamped("new", 5)]), ("bob", "", [Stamped("old", 0)])]
>>> clock = TtlClock()
>>> clock.processing_time = 10
>>> list(unexpired(entries, TtlConfig(timedelta(microseconds=10)), clock))
[('ann', '', [Stamped('new', 5)])]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from emberstate.state.ttl.config import TtlClock, TtlConfig, TtlVisibility

#: key, namespace, content: a stamped value, a list of them, or a dict of user keys to them
Entry = tuple[Any, Any, Any]


def horizon_of(ttl: TtlConfig, clock: TtlClock) -> int | None:
    """Return the last stamp of what had expired by the clock; None if nothing is to be left out."""
    now = clock.reading(ttl.time)
    hidden = ttl.visibility is TtlVisibility.NEVER_RETURN_EXPIRED
    return now - ttl.micros if now is not None and hidden else None


def unexpired(entries: Iterable[Entry], ttl: TtlConfig, clock: TtlClock) -> Iterator[Entry]:
    """Yield the entries of a snapshot without what had expired by its clock; contents are not changed."""
    horizon = horizon_of(ttl, clock)
    if horizon is None:
        yield from entries
        return
    for entry in entries:
        key, namespace, content = entry
        if isinstance(content, list):
            content = [element for element in content if element.stamp > horizon]
            if content:
                yield key, namespace, content
        elif isinstance(content, dict):
            content = {user_key: value for user_key, value in content.items() if value.stamp > horizon}
            if content:
                yield key, namespace, content
        elif content.stamp > horizon:
            yield entry
