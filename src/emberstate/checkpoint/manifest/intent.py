"""Intents: the times of a batch, stored durably before it runs.

The processing time and the watermark of a batch are chosen once. A rerun, in this process or in another after a crash,
finds the intent and uses its values. Slots read no clock of their own, so a rerun sees the same times.

An intent is filed under the batch's id and the commit that it follows, so a batch of an abandoned lineage has another.

Thread safety: immutable values; the functions may be called from any thread.
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
    """A batch before it runs."""

    batch: Batch
    #: The id of the commit that it follows; empty for the first.
    origin: Ident
    #: The incarnation that wrote it.
    incarnation: Number
    token: Ident


def fix(storage: Storage, intent: Intent) -> Intent:
    """Store an intent, or return the one that an earlier run of the same batch stored.

    Raises:
        RestoreRefusedError: the earlier one is for other input.
        StateDeclarationError: the batch is malformed.
    """
    data = seal(_INTENT, intent)
    try:
        open_sealed(_INTENT, data, Intent)
    except CorruptionError as error:
        raise StateDeclarationError(f"the batch {intent.batch!r:.300} is malformed: {error}") from None
    path = intent_path(intent.batch.id, intent.origin)
    if storage.create_if_absent(path, data):
        return intent
    found = open_sealed(_INTENT, storage.read(path, limit=MAX_BYTES), Intent, name=path)
    for part in ("query", "source"):
        before, now = getattr(found.batch, part), getattr(intent.batch, part)
        if before != now:
            raise RestoreRefusedError(
                f"batch {intent.batch.id} has other input than at its first run: expected {part} {before!r:.300}, got "
                f"{now!r:.300}. Restart the query with its former checkpoint location, or start the job "
                f"{'from a savepoint' if intent.origin else 'in an empty location'}.",
                batch=intent.batch.id,
                path=path,
                option=part,
                expected=before[:300],
                found=now[:300],
            )
    return found
