"""Pins: who reads a checkpoint for longer may keep it from being collected meanwhile. No locks.

A pin is a file, `pins/<number>-<id>`. Pinner and collector settle who was first by each writing before it
looks:

    pinner      writes its pin,             then looks for a mark of the checkpoint
    collector   marks the checkpoint,       then looks for pins of it, and only then deletes

So at least one of them sees the other. A collector that sees a pin keeps the checkpoint and takes its mark
back. A pinner that sees a mark takes its pin back and says so: the checkpoint is about to go, or, if the
collector saw the pin as well, stays and can be pinned at the next attempt.

A mark bears the incarnation of the collector that set it, and only that one takes it back. A checkpoint that
another incarnation marked is not kept by later ones: who set the mark may be about to delete.

Pins stay until they are released, also when their process dies: nobody can tell from a distance that it did.
`pins` lists them with host, process and reason, and any of them can be released by hand.

Thread safety: as the storage; a `Pin` may be released by any thread.
"""

from __future__ import annotations

import datetime
import os
import socket
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
    """What a pin says about itself."""

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
    """A checkpoint that is not collected until this is released; a context manager."""

    def __init__(self, storage: Storage, path: str, number: int, record: PinRecord | None) -> None:
        self._storage = storage
        #: The file that is the pin.
        self.path = path
        #: The checkpoint.
        self.number = number
        #: Who set it, and why; None if that cannot be read. It holds all the same.
        self.record = record

    def release(self) -> None:
        """Give the checkpoint up; a second call does nothing."""
        self._storage.delete(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self.record is None:
            return f"<pin of checkpoint {self.number} at {self.path}: whose it is cannot be read>"
        record = self.record
        return (
            f"<pin of checkpoint {self.number} by host {record.host}, pid {record.pid}, "
            f"{record.created}: {record.reason}>"
        )


def pin(storage: Storage, number: int, reason: str, *, clock: Clock | None = None) -> Pin:
    """Keep a checkpoint from being collected until the pin is released.

    Raises:
        CheckpointCollectedError: it is not there, or just being collected; the message says whether to try again.

    >>> from emberstate.storage.memory import MemoryStorage
    >>> pin(MemoryStorage(), 17, "an export")
    Traceback (most recent call last):
    emberstate.errors.CheckpointCollectedError: checkpoint 17 is not in memory://: ...
    """
    if not isinstance(reason, str) or not 0 < len(reason) <= _REASON_LENGTH or not reason.isprintable():
        raise StateDeclarationError(
            f"a pin needs a reason of 1 to {_REASON_LENGTH} printable characters, found {reason!r:.80}: whoever finds "
            f"it later must know whether it can go"
        )
    now = (SystemClock() if clock is None else clock).now_micros()
    created = datetime.datetime.fromtimestamp(now / 1e6, datetime.UTC).isoformat(timespec="seconds")
    record = PinRecord(number, socket.gethostname()[:_REASON_LENGTH], os.getpid(), created, reason, new_id())
    made = Pin(storage, pin_path(number), number, record)
    storage.write_new(made.path, seal(_PIN, record))
    try:
        check_not_condemned(storage, number)
        storage.size(manifest_path(number))
    except StorageNotFoundError:
        made.release()
        raise CheckpointCollectedError(
            f"checkpoint {number} is not in {storage.describe()}: it was collected, or never there. Pin a newer one."
        ) from None
    except BaseException:
        made.release()
        raise
    return made


def check_not_condemned(storage: Storage, number: int) -> None:
    """Raise `CheckpointCollectedError` if somebody is about to collect a checkpoint.

    Who has made itself seen before (by a pin, or by a claim) and finds no mark is seen by every collector that
    comes later.
    """
    if number in condemned_numbers(storage.list(CONDEMNED)):
        raise CheckpointCollectedError(
            f"checkpoint {number} in {storage.describe()} is about to be collected. Take a newer one; or try again: if "
            f"it is still there then, it can be had."
        )


def pins(storage: Storage) -> list[Pin]:
    """All pins, by checkpoint. A pin of which nobody knows any more may be released: `pin.release()`."""
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
    """The checkpoints that are pinned; names decide, so that a pin which cannot be read holds too."""
    return {number for path in storage.list(PINS) if (number := number_in(path)) is not None}


# -- the collector's side -------------------------------------------------------------------------------------


def condemn(storage: Storage, number: int, collector: Holder) -> str:
    """Mark a checkpoint that is to be collected; the mark's path. Look for pins afterwards."""
    path = condemned_path(number, collector.incarnation)
    storage.create_if_absent(path, seal(_MARK, _Mark(number, collector)))
    return path


def condemned_numbers(marks: Iterable[str]) -> set[int]:
    """The checkpoints that are marked, from the paths of the marks."""
    return {number for path in marks if (number := number_in(path)) is not None}
