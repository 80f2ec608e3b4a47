"""Intents: what is fixed, durably, before a batch runs.

The processing time and the watermark of a batch are chosen once. Whoever runs the batch again, in this
process or in another after a crash, finds the intent and takes its values: slots read no clock of their own,
so a rerun sees what the first run saw.

An intent is filed under the batch's id and the commit that it follows, so that one of an abandoned lineage is
never taken for it.

Thread safety: immutable values, functions for any thread.
"""

from __future__ import annotations

import msgspec

from emberstate.checkpoint.manifest.envelope import MAX_BYTES, open_sealed, seal
from emberstate.checkpoint.manifest.layout import intent_path
from emberstate.checkpoint.manifest.model import Batch, Ident, Number
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.storage.interface import Storage

_INTENT = "intent"

class Intent(msgspec.Struct, frozen=True):
    """What a batch is to be."""

    batch: Batch
    #: The id of the commit that it follows; empty for the first.
    origin: Ident
    #: The incarnation that wrote it down.
    incarnation: Number
    token: Ident


def fix(storage: Storage, intent: Intent) -> Intent:
    """Write an intent down, or find the one that an earlier run of the same batch wrote.

    Raises:
        RestoreRefusedError: it was written for other input.
        StateDeclarationError: it is not what a batch can be.
    """
    data = seal(_INTENT, intent)
    try:
        open_sealed(_INTENT, data, Intent)
    except CorruptionError as error:
        raise StateDeclarationError(f"there is no such batch as {intent.batch!r:.300}: {error}") from None
    path = intent_path(intent.batch.id, intent.origin)
    if storage.create_if_absent(path, data):
        return intent
    found = open_sealed(_INTENT, storage.read(path, limit=MAX_BYTES), Intent, name=path)
    for part in ("query", "source"):
        before, now = getattr(found.batch, part), getattr(intent.batch, part)
        if before != now:
            raise RestoreRefusedError(
                f"batch {intent.batch.id} was begun with {part} {before!r:.300} and comes again with {now!r:.300}: "
                f"its result would not be that of the same input. Restart the query with the checkpoint location it "
                f"had, or start the job {'from a savepoint' if intent.origin else 'in an empty location'}."
            )
    return found
