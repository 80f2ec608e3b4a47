"""The states of a location with their types and amounts, and how they are spread over key groups.

Amounts come of a count in the background (`measurements`), of the newest checkpoint when it began. Bytes are live: the
encoded entries, as `emberstate state ls --count` has them.
"""

from __future__ import annotations

from typing import Any, Final

from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.read.listing import describe_state
from emberstate.checkpoint.read.usage import KeyUsage, StateUsage, Usage, state_usage
from emberstate.clock import SystemClock
from emberstate.errors import StateDeclarationError
from emberstate.ui.keys import key_input
from emberstate.ui.locations import Location
from emberstate.ui.measurements import Measurement
from emberstate.ui.shown import printable, shown

#: Cells of a heat strip; more key groups share cells.
CELLS: Final = 256
#: Shades of a heat strip, beside empty.
_SHADES: Final = 8
_KEYS_OF_GROUP: Final = 20
_HOTTEST: Final = 8


def states(location: Location, count: bool) -> dict[str, Any]:
    """Return the states of every operator; `count` asks for the amounts of a large location."""
    with location.open() as reader:
        manifest = reader.manifest
        described = {name: [describe_state(name, state) for state in reader.states(name)] for name in reader.operators}
    known = location.measurements.look(manifest, count)
    operators = []
    for operator in manifest.operators:
        usage = None if known.result is None else known.result.usage.get(operator.name)
        rows = []
        for item in described[operator.name]:
            amount = None if usage is None else usage.states.get(item["state"])
            rows.append(_printable(item) | _amounts(amount))
        operators.append(
            {
                "name": printable(operator.name),
                "key": ", ".join(map(printable, operator.key_schema)),
                "states": rows,
                "total": _amounts(None if usage is None else usage.total()),
            }
        )
    return {"checkpoint": manifest.number, "operators": operators, "count": _about(known)}


def groups(location: Location, count: bool, operator: str, group: str) -> dict[str, Any]:
    """Return the heat of the key groups of every operator, and the largest keys; of one key group, if named."""
    with location.open() as reader:
        manifest = reader.manifest
        known = location.measurements.look(manifest, count)
        chosen = None
        if group:
            found = manifest.operator(operator)
            if found is None or not (group.isascii() and group.isdecimal() and int(group[:6]) < found.max_parallelism):
                what = f"there is no key group {group!r:.50} of operator {operator!r:.100}"
                raise StateDeclarationError(what, operator=operator[:100], option="group", found=group[:50])
            names = [state.address for state in reader.states(operator)]
            of_group = state_usage(reader, operator, names, _KEYS_OF_GROUP, key_groups=[int(group)])
            chosen = {
                "operator": printable(operator),
                "group": int(group),
                **_amounts(of_group.total()),
                "keys": [_key(operator, item) for item in of_group.keys],
            }
    strips = []
    for one in manifest.operators:
        usage = None if known.result is None else known.result.usage.get(one.name)
        strips.append(_strip(manifest, one, usage))
    return {"checkpoint": manifest.number, "operators": strips, "chosen": chosen, "count": _about(known)}


def _printable(item: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else printable(value) for name, value in item.items()}


def _strip(manifest: Manifest, operator: Operator, usage: StateUsage | None) -> dict[str, Any]:
    strip: dict[str, Any] = {
        "name": printable(operator.name),
        "key_groups": operator.max_parallelism,
        "slots": [list(slot.groups) for slot in operator.slots],
        "cells": None,
    }
    if usage is None:
        return strip
    total = usage.total()
    amounts = [usage.of_group(group) for group in range(operator.max_parallelism)]
    largest = max((amount.bytes for amount in amounts), default=0)
    width = -(-operator.max_parallelism // CELLS)
    cells = []
    for start in range(0, operator.max_parallelism, width):
        some = amounts[start : start + width]
        place = [amount.bytes for amount in some].index(max(amount.bytes for amount in some))
        size = some[place].bytes
        shade = 0 if not size else 1 + size * _SHADES // (largest + 1)
        cells.append({"group": start + place, "live_bytes": size, "entries": some[place].entries, "shade": shade})
    hottest = sorted(range(len(amounts)), key=lambda group: (-amounts[group].bytes, group))[:_HOTTEST]
    mean = total.bytes / max(1, operator.max_parallelism)
    return strip | {
        "cells": cells,
        "per_cell": width,
        "mean": mean,
        "largest": largest,
        "skew": largest / mean if mean else None,
        "empty": sum(not amount.bytes for amount in amounts),
        "hottest": [
            {
                "group": group,
                "slot": _slot(operator, group),
                **_amounts(amounts[group]),
                "share": _share(amounts[group], total),
            }
            for group in hottest
            if amounts[group].bytes
        ],
        "keys": [_key(operator.name, item) | {"share": _share(item.usage, total)} for item in usage.keys],
    }


def _slot(operator: Operator, group: int) -> int | None:
    return next((number for number, slot in enumerate(operator.slots) if group in slot.key_groups), None)


def _key(operator: str, item: KeyUsage) -> dict[str, Any]:
    return {
        "operator": printable(operator),
        "key": shown(item.key),
        "input": key_input(item.key),
        "state": printable(item.state),
        "group": item.key_group,
        **_amounts(item.usage),
    }


def _share(amount: Usage, total: Usage) -> float:
    return amount.bytes / max(1, total.bytes)


def _amounts(amount: Usage | None) -> dict[str, int | None]:
    if amount is None:
        return {"entries": None, "values": None, "live_bytes": None}
    return {"entries": amount.entries, "values": amount.cells, "live_bytes": amount.bytes}


def _about(known: Measurement) -> dict[str, Any]:
    """Return how the amounts came about."""
    result = known.result
    return {
        "checkpoint": None if result is None else result.manifest.number,
        "age": None if result is None else max(0.0, (SystemClock().now_micros() - result.at) / 1e6),
        "seconds": None if result is None else result.micros / 1e6,
        "running": known.running,
        "done": known.done,
        "problem": None if known.problem is None else printable(known.problem),
        "to_read": known.to_read,
    }
