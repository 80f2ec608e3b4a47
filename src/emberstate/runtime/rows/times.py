"""Points in time: aware datetimes for users, int64 microseconds since 1970 UTC inside.

>>> from_micros(to_micros(datetime(2026, 1, 2, tzinfo=UTC), "a time")).isoformat()
'2026-01-02T00:00:00+00:00'
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from emberstate.errors import StateTypeError
from emberstate.keygroups.spark_hash import micros_since_epoch
from emberstate.units import option_of

#: The watermark before the first row, and after the last.
MIN_TIME: Final = -(2**63)
MAX_TIME: Final = 2**63 - 1

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: What a datetime can hold.
FIRST_TIME: Final = micros_since_epoch(datetime.min.replace(tzinfo=UTC))
LAST_TIME: Final = micros_since_epoch(datetime.max.replace(tzinfo=UTC))


def from_micros(micros: int) -> datetime:
    """Return the aware UTC datetime, clamped to the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=min(max(micros, FIRST_TIME), LAST_TIME))


def to_micros(when: Any, option: str, owner: str = "") -> int:
    """Return the microseconds of an aware datetime. Errors name its `option` and what that is an option of."""
    if not isinstance(when, datetime) or when.utcoffset() is None:
        way_out = ""
        if isinstance(when, datetime):
            way_out = "; it has no zone: add one with .replace(tzinfo=UTC)"
        elif isinstance(when, int | float):
            way_out = "; a bare number has no unit"
        what = f"{option_of(option, owner)} must be an aware datetime, found {when!r:.100}{way_out}"
        raise StateTypeError(what, option=option)
    return micros_since_epoch(when)
