"""Pins keep a checkpoint from being collected while it is read, without locks.

A pin is a file, `pins/<number>-<id>`. Pinner and collector each write before they look:

    pinner      writes its pin,             then looks for a mark of the checkpoint
    collector   marks the checkpoint,       then looks for pins of it, and only then deletes

So at least one of them sees the other. A collector that sees a pin keeps the checkpoint and deletes its mark. A pinner
that sees a mark deletes its pin and raises: the checkpoint is about to be collected or, if the collector saw the pin as
well, stays and can be pinned at the next attempt.

A mark names the incarnation of its collector, and only that one deletes it. Later incarnations do not keep a checkpoint
that another one marked, since that one may be about to delete it.

Pins stay until they are released, even if their process dies, since its death cannot be observed from afar. `pins`
lists them with host, process and reason, and anybody may release them.

Thread safety: as the storage; a `Pin` may be released by any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

import msgspec

from emberstate.checkpoint.manifest.envelope import open_sealed, seal
from emberstate.checkpoint.manifest.layout import (
    CONDEMNED,
    PINS,
    condemned_path,
    manifest_path,
    new_id,
    number_in,
    pin_path,
)
from emberstate.checkpoint.manifest.model import Holder, Ident, Number
from emberstate.checkpoint.manifest.process import this_process
from emberstate.clock import Clock, SystemClock
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    RestoreRefusedError,
    StateDeclarationError,
    StorageNotFoundError,
)
from emberstate.storage.interface import Storage

_PIN = "pin"
_MARK = "mark"
_LIMIT = 64 * 1024
_REASON_LENGTH = 200


class PinRecord(msgspec.Struct, frozen=True):
    """The content of a pin."""

    number: Number
    host: Ident
    pid: Number
    created: Ident
    reason: Ident
    token: Ident


class _Mark(msgspec.Struct, frozen=True):
    number: Number
    collector: Holder


class Pin:
    """Keeps a checkpoint until it is released; a context manager."""

    def __init__(self, storage: Storage, path: str, number: int, record: PinRecord | None) -> None:
        self._storage = storage
        #: The pin's file.
        self.path = path
        #: The checkpoint.
        self.number = number
        #: Its process and reason; None if they cannot be read. The pin holds all the same.
        self.record = record

    def release(self) -> None:
        """Delete the pin; a second call does nothing."""
        self._storage.delete(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self.record is None:
            return f"<pin of checkpoint {self.number} at {self.path}, which cannot be read>"
        record = self.record
        return (
            f"<pin of checkpoint {self.number} by host {record.host}, pid {record.pid}, "
            f"{record.created}: {record.reason}>"
        )


def pin(storage: Storage, number: int, reason: str, *, clock: Clock | None = None) -> Pin:
    """Keep a checkpoint from being collected until the pin is released.

    Raises:
        CheckpointCollectedError: it does not exist, or is about to be collected; the message says whether to retry.

    >>> from emberstate.storage.memory import MemoryStorage
    >>> pin(MemoryStorage(), 17, "an export")
    Traceback (most recent call last):
    emberstate.errors.CheckpointCollectedError: checkpoint 17 is not in memory://: ...
    """
    if not isinstance(reason, str) or not 0 < len(reason) <= _REASON_LENGTH or not reason.isprintable():
        raise StateDeclarationError(
            f"a pin needs a reason of 1 to {_REASON_LENGTH} printable characters, got {reason!r:.80}. People decide by "
            f"it whether the pin may be released.",
            option="reason",
            found=reason,
        )
    now = (SystemClock() if clock is None else clock).now_micros()
    record = PinRecord(number, *this_process(now), reason, new_id())
    made = Pin(storage, pin_path(number), number, record)
    storage.write_new(made.path, seal(_PIN, record))
    try:
        check_not_condemned(storage, number)
        storage.size(manifest_path(number))
    except StorageNotFoundError:
        made.release()
        raise CheckpointCollectedError(
            f"checkpoint {number} is not in {storage.describe()}: it was collected, or never existed. Pin a newer one.",
            checkpoint=number,
        ) from None
    except BaseException:
        made.release()
        raise
    return made


def check_not_condemned(storage: Storage, number: int) -> None:
    """Raise `CheckpointCollectedError` if a collector has marked a checkpoint.

    A caller that has written its pin or claim before and finds no mark is seen by every later collector.
    """
    if number in condemned_numbers(storage.list(CONDEMNED)):
        raise CheckpointCollectedError(
            f"checkpoint {number} in {storage.describe()} is about to be collected. Use a newer one, or retry: if it "
            f"still exists then, it stays.",
            checkpoint=number,
        )


def pins(storage: Storage) -> list[Pin]:
    """Return all pins, by checkpoint. One that is forgotten may be released: `pin.release()`."""
    found = []
    for path in storage.list(PINS):
        number = number_in(path)
        if number is not None:
            try:
                record = open_sealed(_PIN, storage.read(path, limit=_LIMIT), PinRecord, name=path)
            except StorageNotFoundError:
                continue  # released meanwhile
            except (CorruptionError, RestoreRefusedError):
                record = None
            found.append(Pin(storage, path, number, record))
    return found


def pinned_numbers(storage: Storage) -> set[int]:
    """Return the pinned checkpoints. File names decide, so a pin that cannot be read holds too."""
    return {number for path in storage.list(PINS) if (number := number_in(path)) is not None}


# -- the collector's side -------------------------------------------------------------------------------------


def condemn(storage: Storage, number: int, collector: Holder) -> str:
    """Mark a checkpoint for collection and return the mark's path. The caller looks for pins afterwards."""
    path = condemned_path(number, collector.incarnation)
    storage.create_if_absent(path, seal(_MARK, _Mark(number, collector)))
    return path


def condemned_numbers(marks: Iterable[str]) -> set[int]:
    """Return the marked checkpoints, from the paths of the marks."""
    return {number for path in marks if (number := number_in(path)) is not None}
