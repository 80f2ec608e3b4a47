"""The messages of a slot: what its process is given at its start, what it runs, and what passes between it and a
Spark task besides rows.

    SlotSetup     the worker that starts the process writes it to the process's stdin
    SlotProgram   the driver pickles it (cloudpickle) once per start. Requests name it by its digest; a slot that does
                  not have it asks for it
    Hello         the first bytes of a task, of fixed size, so that a slot orders and refuses requests before it reads
                  anything of unknown size
    SlotRequest → SlotEnd → SlotAnswer or SlotFailure

Thread safety: immutable.
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
    #: Processes that it ends with.
    watched: list[ProcessId]
    #: File descriptors: its socket, which is bound, and the log.
    listener: int
    log: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgram:
    """A stage, and how its slots run it."""

    stage: StageSpec
    state_backend: StateBackend
    policy: ChainPolicy
    #: Drop and count rows whose key has a null ("null_keys"); else reject them.
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

#: Bytes of a hello.
HELLO_SIZE: Final = _HELLO.size


class SlotRequest(Message, frozen=True, kw_only=True):
    """One transaction for a slot; its rows follow. Requests are ordered by the first three fields."""

    incarnation: int
    batch: int
    task_attempt: int
    #: `SlotTask.to_bytes()`, of the operator and of its broadcast state.
    task: bytes
    broadcast_task: bytes | None = None
    #: The name of the broadcast state afterwards; see `OperatorSlot.prepare`.
    broadcast_attempt: str = ""
    #: An Arrow IPC stream, or nothing. The slot handles them before the keyed rows.
    broadcast_rows: bytes = b""
    #: The watermark after the rows, in microseconds.
    end_watermark: int | None = None
    #: `program_digest` of the program.
    program: str

    @property
    def order(self) -> tuple[int, int, int]:
        """Greater for a later request."""
        return self.incarnation, self.batch, self.task_attempt


class SlotAnswer(Message, frozen=True, kw_only=True):
    """The result of a transaction that a slot has prepared."""

    #: `Acknowledgement.to_bytes()`: of keyed, then of broadcast state.
    acknowledgements: tuple[bytes, ...]
    #: How the slot got its state: "hot", "promoted", "rolled back" or "restored".
    start: str
    #: Times of the parts, in microseconds: start, transport (waiting for rows), user (rows, with state access),
    #: state (begin and end of the transaction), output, prepare, gc (since the last answer), total.
    micros: dict[str, int]
    #: Numbers of the slot, its operator and its backend, by name.
    statistics: dict[str, int]
    #: When it began, in microseconds since 1970, by the slot's clock.
    began: int = 0
    #: Added by the task: the executor as `host:pid`, Spark's stage, and how many attempts of the task came before.
    executor: str = ""
    spark_stage: int = 0
    earlier_attempts: int = 0


class SlotEnd(Message, frozen=True):
    """The end of the rows, and how many there were: a stream without it was cut off."""

    batches: int
    rows: int


class SentProgram(Message, frozen=True):
    """A pickled program, and the `sys.path` with the modules it needs."""

    path: tuple[str, ...]
    content: bytes


class SlotFailure(Message, frozen=True):
    """An exception in the slot, as text."""

    #: A class of `emberstate.errors`.
    error: str
    message: str
    errno: int | None = None
    #: Its attributes, as `failure.place_text` writes them.
    place: str = "{}"


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a task: its token, and the order of its request."""

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
        """That of the request."""
        return self.incarnation, self.batch, self.task_attempt

    def to_bytes(self) -> bytes:
        """The bytes to send: always `HELLO_SIZE` bytes."""
        return _HELLO.pack(_MAGIC, self.token_digest, *self.order)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self | None:
        """The hello of these bytes; None if they are none.

        >>> Hello.from_bytes(bytes(HELLO_SIZE)) is None
        True
        """
        magic, digest, *order = _HELLO.unpack(data)
        return cls(digest, *order) if magic == _MAGIC else None


def token_digest(token: str) -> bytes:
    """The digest of a token, which a hello shows."""
    return hashlib.sha256(token.encode()).digest()
