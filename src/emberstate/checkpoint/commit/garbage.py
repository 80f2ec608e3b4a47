"""What checkpoints refer to, which of them are beyond retention, and which files nobody can ever need.

These are the collector's decisions, without its deeds. `Known` is what it knows of the checkpoints that are
there: manifests by number, None for one that cannot be read.

Beyond retention is, and the newest of all never is, since nothing follows it,
- what is older than the last `retained` commits; openings do not count;
- an opening that another opening follows directly: a job that only starts, again and again, leaves one;
- a stray: a manifest in whose place its successor knew another. A process that was overtaken can leave one, at a
  number that had been collected.

Thread safety: pure functions.

What a collection would delete, found by reading alone; nothing is changed.

The rules are `references`'s, applied as a process would that takes the job over now: whatever no kept checkpoint
names is garbage then, files of the present holder included, since its commits are fenced from there on. So what a
running job has just written is in the plan, and is safe as long as nobody takes the job over.

Thread safety: as the storage.
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
    """Refuse what is no number of checkpoints to keep."""
    if type(retained) is not int or retained < 1:
        raise StateDeclarationError(f"retained is how many checkpoints are kept, at least 1; found {retained!r}")


def beyond_retention(known: Known, retained: int) -> set[int]:
    """The numbers of the checkpoints that are not to be kept for their own sake.

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
    """Every file that the checkpoints need: state, and output, which a query may ask for again or a sink still read.

    None if that cannot be told, since one of them cannot be read.
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
    """Of files that were listed, those that nobody needs or can ever refer to; the rule is `retention`'s.

    `before` is the number of a checkpoint that is being made, from files that no manifest names yet; None if
    none is.
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
    """Of intents that were listed, those of batches that follow none of the checkpoints."""
    if any(manifest is None for manifest in known.values()):
        return []
    origins = {manifest.origin or "start" for manifest in known.values() if manifest is not None}
    return [path for path in paths if (match := _INTENT.fullmatch(path)) and match["origin"] not in origins]


@dataclasses.dataclass(frozen=True, slots=True)
class CollectionPlan:
    """What would stay, and what would go."""

    kept: tuple[int, ...]
    #: Those among the kept that are there because they are pinned.
    pinned: tuple[int, ...]
    #: Kept ones that cannot be read: as long as there are any, no files are deleted.
    unreadable: tuple[int, ...]
    checkpoints: tuple[int, ...]
    #: State, output and bundle files, intents and claims; manifests are counted by `checkpoints`.
    files: tuple[str, ...]


def plan_collection(storage: Storage, retained: int) -> CollectionPlan:
    """What a collection that keeps the last `retained` commits would delete."""
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
