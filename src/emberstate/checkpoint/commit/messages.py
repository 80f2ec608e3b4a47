"""The messages between the coordinator and the slots: tasks, and acknowledgements.

A small delta or output travels inside the acknowledgement; a large one was written by the slot, durably, and the
acknowledgement refers to it.

Thread safety: immutable values.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec

from emberstate.checkpoint.manifest.chain import Rewrite, RewriteOrder
from emberstate.checkpoint.manifest.envelope import field_in
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
    OutputFormat,
    SlotChain,
)
from emberstate.errors import CorruptionError

T = TypeVar("T", bound="Message")


class Message(msgspec.Struct, frozen=True):
    """A message."""

    def to_bytes(self) -> bytes:
        """Return the message as sent."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls: type[T], data: bytes) -> T:
        """Return the message from its bytes."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.DecodeError as error:
            what = f"received a malformed {cls.__name__}: {error!s:.300}"
            raise CorruptionError(what, field=field_in(error)) from None


class SlotTask(Message, frozen=True):
    """A slot's part of a transaction."""

    holder: Holder
    job: Name
    operator: Name
    slot: Number
    #: The checkpoint that the transaction becomes.
    number: Number
    batch: Batch
    #: The state to start from: that of `chain.attempt`, which can be restored from `chain.files`.
    chain: SlotChain
    rewrite: RewriteOrder | None = None
    #: Undeclared states that are carried along as bytes.
    keep_states: tuple[Name, ...] = ()
    #: The choices of earlier starts (`PastChoices.to_dict`).
    settled: dict[str, Any] = {}
    #: State files by id, if slots cannot read the storage themselves.
    contents: dict[Ident, bytes] = {}


class WrittenState(Message, frozen=True):
    """A state file of a slot: its bytes, or a reference to them."""

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
    format: OutputFormat = "arrow"


class Acknowledgement(Message, frozen=True, kw_only=True):
    """The result of a slot's part of a transaction."""

    operator: Name
    slot: Number
    #: The checkpoint it is for, the attempt, and the attempt whose state it started from.
    number: Number
    attempt: Ident
    started_from: Ident
    #: A delta, a base that replaces the whole chain, or None if nothing changed.
    state: WrittenState | None = None
    outputs: tuple[WrittenOutput, ...] = ()
    rewrite: Rewrite | None = None
    #: The id of the order that the slot is fulfilling, or has fulfilled but is not adopted yet; or empty.
    rewriting: Ident = ""
    max_event_time: Micros | None = None
    #: The largest event time of each of two inputs; empty if there is one input.
    input_times: tuple[Micros | None, ...] = ()
    #: A checksum of each state that several slots hold and change alike (`StateChecksum`).
    checksums: dict[Name, str] = {}
    #: Counts for reports: rows, entries, bytes, times.
    counts: dict[str, int] = {}
