"""The paths of a job's files in its storage.

    claims/000003                                  who holds the job: one file per incarnation
    intents/00000000000000000042-<id>              times of batch 42, fixed before it ran
    checkpoints/000000000017/manifest              checkpoint 17
    checkpoints/000000000017/bundle-<id>           small deltas and outputs of all slots together
    state/000003/<id>.arrow                        state files written under incarnation 3
    output/000003/<id>                             output files
    savepoints/<name>/…                            a savepoint, whole
    pins/000000000017-<id>                         a reader keeps checkpoint 17
    condemned/000000000017-000003                  incarnation 3 is about to collect checkpoint 17
    history/000003/<level>-<first>-<last>-<count>-<id>  records of the history (`history.segments`)

File names hold an id that is never used twice: a file that a stale process writes late cannot replace another.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from emberstate.errors import StateDeclarationError

CLAIMS: Final = "claims"
INTENTS: Final = "intents"
CHECKPOINTS: Final = "checkpoints"
STATE: Final = "state"
OUTPUT: Final = "output"
SAVEPOINTS: Final = "savepoints"
PINS: Final = "pins"
CONDEMNED: Final = "condemned"
HISTORY: Final = "history"

MANIFEST: Final = "manifest"

#: The names of savepoints.
_SAVEPOINT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}")


def new_id() -> str:
    """Return a new random id."""
    return secrets.token_hex(12)


def claim_path(incarnation: int) -> str:
    """The claim of an incarnation."""
    return f"{CLAIMS}/{incarnation:06}"


def intent_path(batch: int, origin: str) -> str:
    """The intent of a batch that follows the commit with the id `origin`."""
    return f"{INTENTS}/{batch:020}-{origin or 'start'}"


def manifest_path(number: int) -> str:
    """The manifest of a checkpoint."""
    return f"{CHECKPOINTS}/{number:012}/{MANIFEST}"


def bundle_path(number: int) -> str:
    """A new bundle of a checkpoint."""
    return f"{CHECKPOINTS}/{number:012}/bundle-{new_id()}"


def state_path(incarnation: int, ident: str) -> str:
    """A state file."""
    return f"{STATE}/{incarnation:06}/{ident}.arrow"


def output_path(incarnation: int, ident: str) -> str:
    """An output file."""
    return f"{OUTPUT}/{incarnation:06}/{ident}"


def savepoint_path(name: str, file: str = MANIFEST) -> str:
    """A file of a savepoint, by default its manifest."""
    if not isinstance(name, str) or not _SAVEPOINT_NAME.fullmatch(name):
        raise StateDeclarationError(
            f"{name!r:.120} cannot name a savepoint. Use up to 100 letters, digits, '.', '_' and '-', beginning with a "
            f"letter or digit.",
            option="savepoint",
            found=f"{name!r:.120}",
        )
    return f"{SAVEPOINTS}/{name}/{file}"


def pin_path(number: int) -> str:
    """A new pin of a checkpoint."""
    return f"{PINS}/{number:012}-{new_id()}"


def condemned_path(number: int, incarnation: int) -> str:
    """The mark of a checkpoint that an incarnation is about to collect."""
    return f"{CONDEMNED}/{number:012}-{incarnation:06}"


def number_in(path: str) -> int | None:
    """Return the number at the start of a path's second part: of an incarnation, checkpoint or batch; or None."""
    parts = path.split("/")
    match = _NUMBER.match(parts[1]) if len(parts) > 1 else None
    return None if match is None else int(match[0])
