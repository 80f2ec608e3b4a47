"""Messages for a location without checkpoints and savepoints: usually it is mistyped.

Thread safety: the functions only list directories.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from emberstate.checkpoint.manifest.layout import CHECKPOINTS, SAVEPOINTS
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.paths import TEMPORARY

#: How many directories are listed.
_MOST: Final = 1000
#: The folders of Spark's own checkpoint.
_QUERY: Final = ("offsets", "commits")


def nothing_in(storage: Storage) -> str:
    """Return what is wrong with an empty location, and which one may be meant.

    >>> nothing_in(LocalStorage("/nowhere/cards"))
    '/nowhere/cards does not exist: check the location'
    """
    if not isinstance(storage, LocalStorage):
        return f"{storage.describe()} has no checkpoints: check the location"
    path = Path(storage.describe())
    try:
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
    names = {entry.name for entry in path.iterdir()}
    return f"{path} is empty" if names <= {TEMPORARY} else f"{path} has no checkpoints"


def _near(path: Path) -> Iterator[Path]:
    """Yield locations one level above, below and beside."""
    around = [*path.parents[:2]]
    for folder in (path, path.parent):
        if folder.is_dir():
            around += [entry for entry, _ in zip(sorted(folder.iterdir()), range(_MOST), strict=False)]
    for found in dict.fromkeys(around):
        if found != path and any((found / name).is_dir() for name in (CHECKPOINTS, SAVEPOINTS)):
            yield found
