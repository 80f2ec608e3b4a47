"""Messages for a location without checkpoints and savepoints: usually it is mistyped.

They tell apart a location that is missing, one that is empty, a folder inside a location, and a folder of locations. An
object store has no folders, so there missing and empty are the same; it is not searched for others.

Thread safety: the functions only list directories.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from emberstate.checkpoint.manifest.layout import (
    CHECKPOINTS,
    CLAIMS,
    CONDEMNED,
    INTENTS,
    OUTPUT,
    PINS,
    SAVEPOINTS,
    STATE,
)
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.paths import TEMPORARY

#: How many directories are listed.
_MOST: Final = 1000
#: The folders of Spark's own checkpoint.
_QUERY: Final = ("offsets", "commits")
#: The folders of a location.
_FOLDERS: Final = (CLAIMS, INTENTS, CHECKPOINTS, STATE, OUTPUT, SAVEPOINTS, PINS, CONDEMNED)


def nothing_in(storage: Storage) -> str:
    """Return what is wrong with an empty location, and which one may be meant.

    >>> nothing_in(LocalStorage("/nowhere/cards"))
    '/nowhere/cards does not exist: check the location'
    """
    where = storage.describe()
    above = _above(where)
    if not isinstance(storage, LocalStorage):
        hint = f"did you mean {above[0]}?" if above else "check the location"
        return f"{where} has no checkpoints, and maybe nothing else: {hint}"
    path = Path(where)
    try:
        for found in above:
            if _is_location(Path(found)):
                folder, *names = path.relative_to(found).parts
                more = f", with --savepoint {names[0]}" if folder == SAVEPOINTS and names else ""
                return f"{path} is inside the location {found}: did you mean that{more}?"
        near = [str(found) for found in _near(path)]
        what = _what_is(path)
    except OSError as error:
        return f"{path} cannot be listed: {error}"
    near = difflib.get_close_matches(str(path), near, 3, cutoff=0)
    return f"{what}: did you mean {' or '.join(near)}?" if near else f"{what}: check the location"


def _what_is(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist"
    if not path.is_dir():
        return f"{path} is a file, not a directory"
    if all((path / name).is_dir() for name in _QUERY):
        return f"{path} is Spark's own checkpoint of a query, not the location of a state backend"
    entries = list(itertools.islice(path.iterdir(), _MOST))
    if {entry.name for entry in entries} <= {TEMPORARY}:
        return f"{path} is empty"
    below = sum(map(_is_location, entries))
    if below:
        return f"{path} is no location, but has {below} of them below it"
    return f"{path} has no checkpoints"


def _above(where: str) -> list[str]:
    """The locations that a path may lead into, by the names of its last two parts.

    >>> _above("s3://bucket/cards/checkpoints/000000000003"), _above("/data/state/pins"), _above("/data/cards")
    (['s3://bucket/cards'], ['/data/state', '/data'], [])
    >>> _above("s3://checkpoints"), _above("/pins"), _above("state")
    ([], [], [])
    """
    parts = where.rstrip("/").split("/")
    counts = [count for count in (len(parts) - 1, len(parts) - 2) if count > 0 and parts[count] in _FOLDERS]
    return [found for count in counts if (found := "/".join(parts[:count])) and not found.endswith("/")]


def _is_location(path: Path) -> bool:
    return any((path / name).is_dir() for name in (CHECKPOINTS, SAVEPOINTS))


def _near(path: Path) -> Iterator[Path]:
    """Yield locations one level above, below and beside."""
    around = [*path.parents[:2]]
    for folder in (path, path.parent):
        if folder.is_dir():
            around += [entry for entry, _ in zip(sorted(folder.iterdir()), range(_MOST), strict=False)]
    for found in dict.fromkeys(around):
        if found != path and _is_location(found):
            yield found
