"""Which checkpoints are beyond retention, and which files are garbage. Decides only; `retention` deletes.

`Known` maps the numbers of the existing checkpoints to their manifests, None for one that cannot be read.

These checkpoints are beyond retention, but never the newest of all:
- those older than the last `retained` commits; openings do not count;
- an opening that another opening follows directly: a job that only starts, again and again, leaves one;
- a stray: a manifest whose successor names another one as its parent. A process that was overtaken can leave one, at
  a number that had been collected.

`plan_collection` returns what a collection would delete, as if a process took the job over now: then every file that
no kept checkpoint names is garbage, also files of the present holder, whose commits are fenced. So the plan contains
what a running job has just written; that is safe as long as no process takes the job over.

Thread safety: pure functions; `plan_collection` as the storage.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Final

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.incarnation import newest
from emberstate.checkpoint.manifest.layout import CHECKPOINTS, CLAIMS, INTENTS, OUTPUT, STATE, number_in
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.checkpoint.manifest.pins import pinned_numbers
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.storage.interface import Storage

Known = Mapping[int, Manifest | None]

#: Files that `layout` names: nothing else is ever collected.
_FILE: Final = re.compile(
    rf"{STATE}/(?P<state>[0-9]{{6,}})/((?P<order>[0-9a-f]+)-)?[0-9a-f]+\.arrow"
    rf"|{OUTPUT}/(?P<output>[0-9]{{6,}})/[0-9a-f]+"
    rf"|{CHECKPOINTS}/(?P<bundle>[0-9]{{12,}})/bundle-[0-9a-f]+"
)
_INTENT: Final = re.compile(rf"{INTENTS}/[0-9]{{20}}-(?P<origin>[0-9a-z]+)")


def check_retained(retained: int) -> None:
    """Reject an invalid number of checkpoints to keep."""
    if type(retained) is not int or retained < 1:
        what = f"retained must be a number of checkpoints, at least 1; got {retained!r}"
        raise StateDeclarationError(what, option="retained", found=retained)


def beyond_retention(known: Known, retained: int) -> set[int]:
    """Return the numbers of the checkpoints that are not kept, unless they are pinned.

    >>> beyond_retention({1: None, 2: None}, 3)
    set()
    """
    gone = {number for number in known if _is_stray(known, number) or _is_superseded(known, number)}
    commits = [number for number, found in known.items() if number not in gone and found and found.kind == "commit"]
    if len(commits) >= retained:
        oldest = sorted(commits)[-retained]
        gone.update(number for number in known if number < oldest)
    return gone


def _is_stray(known: Known, number: int) -> bool:
    found, successor = known[number], known.get(number + 1)
    if found is None or successor is None or successor.parent is None:
        return False
    return successor.parent.number == number and successor.parent.id != found.id


def _is_superseded(known: Known, number: int) -> bool:
    found, successor = known[number], known.get(number + 1)
    if found is None or successor is None or successor.parent is None:
        return False
    return found.kind == successor.kind == "opening" and successor.parent.id == found.id


def protected_paths(known: Known) -> set[str] | None:
    """Return every file that the checkpoints need: state, and output, which may be delivered again.

    None if one of them cannot be read, since it may need any file.
    """
    paths: set[str] = set()
    for manifest in known.values():
        if manifest is None:
            return None
        paths.update(ref.path for ref in manifest.file_refs())
    return paths


def garbage(
    paths: Iterable[str], protected: set[str], incarnation: int, unfinished: frozenset[str], before: int | None
) -> list[str]:
    """Return those of the listed files that no manifest needs or can ever refer to, by the rules of `retention`.

    `before` is the number of a checkpoint that is being made, from files that no manifest names yet; or None.
    """
    return [path for path in paths if path not in protected and _is_over(path, incarnation, unfinished, before)]


def _is_over(path: str, incarnation: int, unfinished: frozenset[str], before: int | None) -> bool:
    match = _FILE.fullmatch(path)
    if match is None:
        return False
    if match["bundle"] is not None:
        return before is None or int(match["bundle"]) < before
    writer = int(match["state"] or match["output"])
    if writer != incarnation:
        return writer < incarnation
    if match["order"] is not None:
        return match["order"] not in unfinished
    return before is None


def past_intents(paths: Iterable[str], known: Known) -> list[str]:
    """Return those of the listed intents whose batches follow none of the checkpoints."""
    if any(manifest is None for manifest in known.values()):
        return []
    origins = {manifest.origin or "start" for manifest in known.values() if manifest is not None}
    return [path for path in paths if (match := _INTENT.fullmatch(path)) and match["origin"] not in origins]


@dataclasses.dataclass(frozen=True, slots=True)
class CollectionPlan:
    """What a collection would keep, and what it would delete."""

    kept: tuple[int, ...]
    #: Kept only because they are pinned.
    pinned: tuple[int, ...]
    #: Kept but unreadable: while there are any, no files are deleted.
    unreadable: tuple[int, ...]
    checkpoints: tuple[int, ...]
    #: State, output and bundle files, intents and claims; `checkpoints` has the manifests.
    files: tuple[str, ...]


def plan_collection(storage: Storage, retained: int) -> CollectionPlan:
    """Return what a collection that keeps the last `retained` commits would delete."""
    check_retained(retained)
    listed = [path for folder in (STATE, OUTPUT, CHECKPOINTS) for path in storage.list(folder)]
    intents, claims = storage.list(INTENTS), storage.list(CLAIMS)
    known: dict[int, Manifest | None] = {}
    for number in checkpoint_numbers(storage):
        try:
            known[number] = read_checkpoint(storage, number)
        except CheckpointCollectedError:
            continue  # by the job, just now
        except (CorruptionError, RestoreRefusedError, StateDeclarationError):
            known[number] = None
    over = beyond_retention(known, retained)
    pinned = over & pinned_numbers(storage)
    kept = {number: manifest for number, manifest in known.items() if number not in over - pinned}
    holder = newest(storage)
    files = [path for path in claims if (number_in(path) or 0) <= holder]
    files += past_intents(intents, kept)
    protected = protected_paths(kept)
    if protected is not None:
        files += garbage(listed, protected, holder + 1, frozenset(), None)
    return CollectionPlan(
        kept=tuple(sorted(kept)),
        pinned=tuple(sorted(pinned)),
        unreadable=tuple(sorted(number for number, manifest in kept.items() if manifest is None)),
        checkpoints=tuple(sorted(over - pinned)),
        files=tuple(sorted(files)),
    )
