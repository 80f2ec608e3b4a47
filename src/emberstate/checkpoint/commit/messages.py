"""What passes between the coordinator and the slots: a task there, an acknowledgement back.

Both are plain data with a form for the wire. A small delta or output travels inside the acknowledgement; a
large one was written and synced by the slot, which names its place.

Thread safety: immutable values.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from emberstate.checkpoint.manifest.chain import Rewrite, RewriteOrder
from emberstate.checkpoint.manifest.model import (
    Batch,
    Checksum,
    FileRef,
    Groups,
    Holder,
    Ident,
    Micros,
    Name,
    Number,
    SlotChain,
)
from emberstate.errors import CorruptionError

T = TypeVar("T", bound="Message")


class Message(msgspec.Struct, frozen=True):
    """Something that travels."""

    def to_bytes(self) -> bytes:
        """As sent."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls: type[T], data: bytes) -> T:
        """As received."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            raise CorruptionError(f"a {cls.__name__} that makes no sense was received: {error!s:.300}") from None


class SlotTask(Message, frozen=True):
    """What a slot is to do in a transaction."""

    holder: Holder
    job: Name
    operator: Name
    slot: Number
    #: The checkpoint that the transaction is to become.
    number: Number
    batch: Batch
    #: Where to start from: the state of `chain.attempt`, which can be restored from `chain.files`.
    chain: SlotChain
    rewrite: RewriteOrder | None = None
    #: States that are carried along though nobody declares them.
    keep_states: tuple[Name, ...] = ()
    #: What options said at earlier starts (`PastChoices.to_dict`).
    settled: dict[str, Any] = {}
    #: Contents of state files by id, where slots cannot read the storage themselves.
    contents: dict[Ident, bytes] = {}


class WrittenState(Message, frozen=True):
    """What a slot's state files have in common: bytes in hand, or a place where they were written."""

    id: Ident
    kind: Literal["base", "delta"]
    groups: Groups
    seal: Checksum
    content: bytes | None = None
    place: FileRef | None = None


class WrittenOutput(Message, frozen=True):
    """One named output of a slot."""

    name: Name
    rows: Number
    content: bytes | None = None
    place: FileRef | None = None


class Acknowledgement(Message, frozen=True, kw_only=True):
    """What a slot has prepared."""

    operator: Name
    slot: Number
    #: The checkpoint that it is for, the attempt, and the attempt whose state it started from.
    number: Number
    attempt: Ident
    started_from: Ident
    #: A delta, a base that replaces the whole chain, or nothing if nothing changed.
    state: WrittenState | None = None
    outputs: tuple[WrittenOutput, ...] = ()
    rewrite: Rewrite | None = None
    #: The order that is being fulfilled, or was and is not adopted yet. Empty: none.
    rewriting: Ident = ""
    max_event_time: Micros | None = None
    #: The same of each of two inputs; empty if there is one.
    input_times: tuple[Micros | None, ...] = ()
    #: Of states that several slots hold, and change alike: a checksum of all of it, by name (`StateChecksum`).
    checksums: dict[Name, str] = {}
    #: What to report: rows, entries, bytes, times.
    counts: dict[str, int] = {}
