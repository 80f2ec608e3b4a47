"""When a stage of aggregates emits: `emit="changed"`, `"closed"` or `es.every("1 minute")`.

Immutable; any thread.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from emberstate.errors import StateDeclarationError
from emberstate.units import Duration, as_micros

#: Each key, or key and window, that changed in a batch, once, at the batch's end.
CHANGED: Final = "changed"
#: A window when it closes, and again, once per batch, when late rows have changed it since.
CLOSED: Final = "closed"


@dataclasses.dataclass(frozen=True, slots=True)
class Every:
    """Emit what has changed once per `micros`, and windows when they close."""

    micros: int

    @classmethod
    def of(cls, interval: Duration) -> Every:
        """Once per interval."""
        micros = as_micros(interval, "every")
        if micros <= 0:
            what = f"every({interval!r}) must be longer than nothing"
            raise StateDeclarationError(what, option="every", expected="> 0", found=interval)
        return cls(micros)


Emit = str | Every


def checked_emit(emit: Any, windowed: bool) -> Emit:
    """What was declared, or the default: "closed" with windows, else "changed"."""
    if emit is None:
        return CLOSED if windowed else CHANGED
    if isinstance(emit, Every) or emit == CHANGED or (windowed and emit == CLOSED):
        return emit  # type: ignore[no-any-return]
    expected = f'"{CHANGED}", ' + (f'"{CLOSED}" ' if windowed else "") + 'or es.every("1 minute")'
    why = "" if windowed or emit != CLOSED else ": without windows nothing closes"
    raise StateDeclarationError(
        f"emit is {expected}, got {emit!r:.100}{why}", option="emit", expected=expected, found=repr(emit)
    )
