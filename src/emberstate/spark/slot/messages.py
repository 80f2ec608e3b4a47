"""`SlotSetup`: what a slot's process is told when it is started.

Thread safety: immutable.

`SlotProgram`: what a slot runs, as the driver sends it to the slot processes.

The driver pickles it (cloudpickle) once per start. Requests name it by its digest; a slot that does not have it
asks for it.

Thread safety: immutable.

What passes between a Spark task and its slot, besides rows: a request there, an answer or a failure back.

A task says hello first, in a fixed form, so that a slot can order and refuse requests before it reads anything
of unknown size.

Thread safety: immutable values.
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from typing import Final, Self

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.messages import Message
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.spark.slot.process_watch import ProcessId


class SlotSetup(Message, frozen=True, kw_only=True):
    """Who the slot is, and whom it belongs to."""

    #: How the slot is called in messages.
    name: str
    token: str
    incarnation: int
    idle_seconds: float
    stuck_seconds: float
    #: `sys.path` of the worker that started it.
    path: list[str]
    #: The variable PYTHONPATH there.
    python_path: str | None
    #: Processes with which it ends.
    watched: list[ProcessId]
    #: File descriptors: its socket, which is bound, and the log.
    listener: int
    log: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgram:
    """The stage, and how its slots run it."""

    stage: StageSpec
    state_backend: StateBackend
    policy: ChainPolicy
    #: Rows whose key has a null are dropped and counted ("null_keys"); else they are refused.
    drop_null_keys: bool
    #: How long a slot lives without a request.
    idle_seconds: float


def program_digest(program: bytes) -> str:
    """The name of a pickled program.

    >>> program_digest(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(program).hexdigest()


_HELLO: Final = struct.Struct("<8s32sqqq")
_MAGIC: Final = b"EMBSLOT1"

#: So long is a hello.
HELLO_SIZE: Final = _HELLO.size


class SlotRequest(Message, frozen=True, kw_only=True):
    """What a slot is to do in a transaction; its rows follow. Requests are ordered by the first three."""

    incarnation: int
    batch: int
    task_attempt: int
    #: `SlotTask.to_bytes()`, of the operator and of its broadcast state.
    task: bytes
    broadcast_task: bytes | None = None
    #: What the broadcast state is called afterwards; see `OperatorSlot.prepare`.
    broadcast_attempt: str = ""
    #: An Arrow IPC stream, or nothing. They come before the keyed rows.
    broadcast_rows: bytes = b""
    #: What event time gets to after the rows, in microseconds.
    end_watermark: int | None = None
    #: `program_digest` of the program.
    program: str

    @property
    def order(self) -> tuple[int, int, int]:
        """What a later request has more of."""
        return self.incarnation, self.batch, self.task_attempt


class SlotAnswer(Message, frozen=True, kw_only=True):
    """What a slot has prepared."""

    #: `Acknowledgement.to_bytes()`: of keyed, then of broadcast state.
    acknowledgements: tuple[bytes, ...]
    #: How the slot got to where the task starts: "hot", "promoted", "rolled back" or "restored".
    start: str
    #: Times of the parts, in microseconds: start, transport (waiting for rows), user (rows, with state access),
    #: state (begin and end of the transaction), output, prepare, gc (since the last answer), total.
    micros: dict[str, int]
    #: What the slot holds and has done.
    statistics: dict[str, int]


class SlotEnd(Message, frozen=True):
    """The end of the rows, and how many there were: a stream without it was cut off."""

    batches: int
    rows: int


class SentProgram(Message, frozen=True):
    """A program on its way, and where the modules are that it needs."""

    path: tuple[str, ...]
    content: bytes


class SlotFailure(Message, frozen=True):
    """Why there is no answer: an exception, as text."""

    #: A class of `emberstate.errors`.
    error: str
    message: str
    errno: int | None = None
    #: Its attributes, as `failure.place_text` writes them.
    place: str = "{}"


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """The first words of a task: who it is, and which request it brings."""

    token_digest: bytes
    incarnation: int
    batch: int
    task_attempt: int

    @classmethod
    def of(cls, token: str, request: SlotRequest) -> Self:
        """The hello for a request."""
        return cls(token_digest(token), *request.order)

    @property
    def order(self) -> tuple[int, int, int]:
        """As that of the request."""
        return self.incarnation, self.batch, self.task_attempt

    def to_bytes(self) -> bytes:
        """As sent: always `HELLO_SIZE` bytes."""
        return _HELLO.pack(_MAGIC, self.token_digest, *self.order)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """As received; None if it is no hello.

        >>> Hello.from_bytes(bytes(HELLO_SIZE)) is None
        True
        """
        magic, digest, *order = _HELLO.unpack(data)
        return cls(digest, *order) if magic == _MAGIC else None


def token_digest(token: str) -> bytes:
    """What is shown of a token."""
    return hashlib.sha256(token.encode()).digest()
