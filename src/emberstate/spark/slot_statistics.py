"""What a slot's process says of itself with every answer: numbers by name.

Thread safety: the owner's thread.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Final

from emberstate.runtime.operator_slot import OperatorSlot

_PAGE: Final = os.sysconf("SC_PAGESIZE")


def slot_statistics(slot: OperatorSlot) -> dict[str, int]:
    """Numbers of the slot, its operator and its backend; those of a part are called `part/name`, or
    `part/its own name/name`."""
    found = {"rss_bytes": int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE}
    _add(found, "", slot.statistics())
    _add(found, "", slot.operator.statistics())
    return found


def _add(found: dict[str, int], prefix: str, value: Any) -> None:
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, int):
            found[prefix + field.name] = part
        elif dataclasses.is_dataclass(part):
            _add(found, f"{prefix}{field.name}/", part)
        elif isinstance(part, tuple):
            for one in part:
                if dataclasses.is_dataclass(one) and hasattr(one, "name"):
                    _add(found, f"{prefix}{field.name}/{one.name}/", one)
        elif isinstance(part, dict):
            found.update({f"{prefix}{field.name}/{name}": n for name, n in part.items() if isinstance(n, int)})
