"""The options of the format "emberstate": their names, and their values. Any other option raises.

Thread safety: pure functions.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from emberstate.errors import StateDeclarationError

READ_OPTIONS: Final = (
    "path", "operator", "state", "checkpoint", "savepoint", "key", "key_groups", "changes_since", "partitions",
)  # fmt: skip
WRITE_OPTIONS: Final = (
    "path", "savepoint", "job", "operator", "state", "kind", "key", "user_key", "value", "max_parallelism",
)  # fmt: skip

KINDS: Final = ("value", "list", "map")


def check_options(options: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """The options by their names in lower case; raises for an unknown one.

    >>> check_options({"path": "here", "sate": "seen"}, READ_OPTIONS)
    Traceback (most recent call last):
        ...
    emberstate.errors.StateDeclarationError: there is no option 'sate'; did you mean 'state'? The options are path, ...
    """
    found = {name.lower(): value for name, value in options.items()}
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise StateDeclarationError(
                f"there is no option {name!r}; {hint}The options are {', '.join(known)}",
                option=name,
                expected=near[0] if near else None,
            )
    return found


def needed(options: Mapping[str, str], name: str, what: str) -> str:
    """The value of an option that must be given."""
    value = options.get(name, "")
    if not value:
        text = f'the option {name!r} is missing: {what}, as .option("{name}", …)'
        raise StateDeclarationError(text, option=name, found="")
    return value


def number(options: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """The value of an option that is a number; None if it is not given."""
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        what = f"option {name}: expected a whole number from {least} on, got {text!r:.100}"
        raise StateDeclarationError(what, option=name, found=text)
    return int(text)


def checkpoint_number(options: Mapping[str, str]) -> int | None:
    """The number of the checkpoint to read; None for the newest."""
    if options.get("checkpoint", "latest").strip().lower() == "latest":
        return None
    try:
        return number(options, "checkpoint", 1)
    except StateDeclarationError:
        raise StateDeclarationError(
            f"option checkpoint: expected the number of a checkpoint, or latest, got {options['checkpoint']!r:.100}",
            option="checkpoint",
            found=options["checkpoint"],
        ) from None


def key_groups(options: Mapping[str, str]) -> list[int] | None:
    """The key groups to read; None for all.

    >>> key_groups({"key_groups": "3, 5-7"})
    [3, 5, 6, 7]
    """
    text = options.get("key_groups")
    if text is None:
        return None
    groups: set[int] = set()
    for part in text.split(","):
        first, dash, last = (piece.strip() for piece in part.partition("-"))
        bounds = [first, last] if dash else [first, first]
        if any(not bound.isascii() or not bound.isdigit() or int(bound) > 32_767 for bound in bounds) or int(
            bounds[0]
        ) > int(bounds[1]):
            raise StateDeclarationError(
                f'option key_groups: expected numbers and ranges, such as "0-31" or "3,5", got {text!r:.100}',
                option="key_groups",
                found=text,
            )
        groups.update(range(int(bounds[0]), int(bounds[1]) + 1))
    return sorted(groups)


def kind_of_state(options: Mapping[str, str]) -> str:
    """The kind of state to write."""
    kind = options.get("kind", "map" if "user_key" in options else "value").lower()
    if kind not in KINDS:
        what = f"option kind: expected one of {', '.join(KINDS)}, got {kind!r:.100}"
        raise StateDeclarationError(what, option="kind", found=kind)
    return kind
