"""What a collection would delete, found by reading alone; nothing is changed.

The rules are `references`'s, applied as a process would that takes the job over now: whatever no kept checkpoint
names is garbage then, files of the present holder included, since its commits are fenced from there on. So what a
running job has just written is in the plan, and is safe as long as nobody takes the job over.

Thread safety: as the storage.
"""

from __future__ import annotations

import dataclasses

from emberstate.checkpoint.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.incarnation import newest
from emberstate.checkpoint.layout import CHECKPOINTS, CLAIMS, INTENTS, OUTPUT, STATE, number_in
from emberstate.checkpoint.manifest import Manifest
from emberstate.checkpoint.pins import pinned_numbers
from emberstate.checkpoint.references import beyond_retention, garbage, past_intents, protected_paths
from emberstate.checkpoint.retention import check_retained
from emberstate.checkpoint.storage import Storage
from emberstate.errors import CheckpointCollectedError, CorruptionError, RestoreRefusedError


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
        except (CorruptionError, RestoreRefusedError):
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
