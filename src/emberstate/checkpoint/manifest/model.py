"""The manifest: one small file that names everything a checkpoint consists of.

A checkpoint exists when its manifest does. The manifest has, per operator, the key groups of every slot with a chain
of state files (bases, then deltas, to be applied in order); the output files of the batch; the source's position; the
watermark. docs/format.md specifies it, `invariants` lists and checks its invariants.

Thread safety: values are immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from emberstate.checkpoint.files.meta import library_version
from emberstate.checkpoint.manifest.decisions import FileDecisions
from emberstate.checkpoint.manifest.envelope import seal
from emberstate.keygroups import KeyGroupRange

#: State files of one slot that a manifest may list: far more than `chain` ever lets it have.
MAX_CHAIN_FILES: Final = 20_000

Number = Annotated[int, Meta(ge=0, le=2**62)]
Micros = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Ident = Annotated[str, Meta(max_length=200)]
Path = Annotated[str, Meta(min_length=1, max_length=512)]
Groups = tuple[Annotated[int, Meta(ge=0, le=32767)], Annotated[int, Meta(ge=0, le=32767)]]
#: `FileDecisions.to_dict`. Nothing else is decoded, so a hostile file cannot make it large.
Decisions = dict[str, list[str] | dict[str, str | int | dict[str, str] | None]]
#: `PastChoices.to_dict`: decisions, and a list of names.
StoredChoices = dict[str, list[str] | Decisions]


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference to bytes: a file, or a part of a bundle."""

    path: Path
    size: Number
    checksum: Checksum
    offset: Number = 0


class StateFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state file, and the key groups that a slot takes from it."""

    id: Ident
    kind: Literal["base", "delta"]
    groups: Groups
    place: FileRef
    #: Checksum of the file's footer, which holds the checksums of its parts: so one part can be verified alone.
    seal: Checksum
    #: The checkpoint it was written for.
    number: Number
    #: Decisions about its states (`FileDecisions.to_dict`).
    evolution: Decisions = {}

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups that the slot takes from it."""
        return KeyGroupRange(*self.groups)

    @property
    def decisions(self) -> FileDecisions:
        """The decisions about its states."""
        return FileDecisions.from_dict(self.evolution)


class SlotChain(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one slot: its key groups, and the files to apply in order."""

    groups: Groups
    #: The attempt whose state this is. A slot that holds it need not restore.
    attempt: Ident
    files: Annotated[tuple[StateFile, ...], Meta(max_length=MAX_CHAIN_FILES)] = ()

    @property
    def key_groups(self) -> KeyGroupRange:
        """The slot's key groups."""
        return KeyGroupRange(*self.groups)


class Operator(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one operator."""

    name: Name
    key_schema: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    max_parallelism: Number
    slots: Annotated[tuple[SlotChain, ...], Meta(min_length=1, max_length=32768)]
    #: The choices of earlier starts (`PastChoices.to_dict`), so that repeating them is no mistake.
    settled: StoredChoices = {}

    @property
    def parallelism(self) -> int:
        """The number of slots."""
        return len(self.slots)


#: How the rows of an output are written: an Arrow stream, or a Parquet file of its own.
OutputFormat = Literal["arrow", "parquet"]
#: What a reader of a manifest with Parquet outputs must support.
PARQUET_OUTPUTS: Final = "parquet outputs"


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rows that a slot emitted, stored as long as the checkpoint that names them."""

    operator: Name
    name: Name
    slot: Number
    rows: Number
    place: FileRef
    format: OutputFormat = "arrow"


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage of the program that ran the batch, and its outputs."""

    name: Name
    #: The schema of every output by name, as text of the runner.
    outputs: dict[Name, str] = {}


class Holder(msgspec.Struct, frozen=True):
    """A process that may commit, or once could."""

    incarnation: Number
    host: Ident
    pid: Number
    started: Ident
    token: Ident

    def __str__(self) -> str:
        return f"incarnation {self.incarnation} (host {self.host}, pid {self.pid}, started {self.started})"


class Idle(msgspec.Struct, frozen=True):
    """Since when no row has arrived."""

    #: The processing time of the last batch that had rows.
    since: Micros
    #: The event time reached by then.
    watermark: Micros


class InputTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of one of two inputs."""

    #: The processing time of the last batch with rows of it; of the first batch, if none had any.
    since: Micros
    max_event_time: Micros | None = None


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The batch after which a checkpoint was made."""

    id: Number
    #: The query that numbers the batches, and the source's position: opaque text of the runner.
    query: str
    source: str
    processing_time: Micros
    watermark: Micros | None = None
    max_event_time: Micros | None = None
    #: Set for a batch without rows.
    idle: Idle | None = None
    #: Event time of the stages after the one it comes from; None if the writer did not know it.
    stage_watermarks: Annotated[dict[Name, Micros], Meta(max_length=1000)] | None = None
    #: One for each of two inputs; empty if there is one, or the writer did not distinguish them.
    inputs: Annotated[tuple[InputTime, ...], Meta(max_length=2)] = ()
    #: The input ended with this batch: event time reached its end.
    ended: bool = False

    def of_inputs(self, count: int) -> tuple[InputTime, ...]:
        """Return the progress of `count` inputs; if the writer did not distinguish them, each may be as far as all."""
        if len(self.inputs) == count:
            return self.inputs
        return (InputTime(self.processing_time, self.max_event_time),) * count


class Parent(msgspec.Struct, frozen=True):
    """The checkpoint before this one."""

    number: Number
    id: Ident


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A checkpoint."""

    job: Name
    id: Ident
    number: Number
    #: An opening repeats the state that a start found, under its own incarnation; it has no batch of its own.
    kind: Literal["opening", "commit", "savepoint"]
    writer: Holder
    created: Micros
    #: The id of the newest commit up to here, or of a later opening that went back to it on purpose. A batch's intent
    #: is filed under it. Empty before the first commit.
    origin: Ident = ""
    #: A random id of the location, made by the first opening and carried along; it changes if everything is deleted
    #: and the job starts again. Empty in manifests of older writers.
    location: Ident = ""
    parent: Parent | None = None
    batch: Batch | None = None
    #: The batch of the savepoint that the job started from, until the job commits a batch of its own.
    saved_batch: Batch | None = None
    operators: tuple[Operator, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: Those of the program that ran the batch, in order; they emitted `outputs`. Empty if not recorded.
    stages: tuple[Stage, ...] = ()
    #: A later batch had committed before the job was set back to here, and `outputs` were deleted by then.
    delivered: bool = False
    #: How long parts of the batch took, by name; for display.
    micros: Annotated[dict[Annotated[str, Meta(max_length=50)], Number], Meta(max_length=20)] = {}
    requires: tuple[Ident, ...] = ()
    library: Ident = msgspec.field(default_factory=library_version)

    def to_bytes(self) -> bytes:
        """Return the file's bytes."""
        return seal("manifest", self)

    @property
    def times(self) -> Batch | None:
        """The batch whose times the next one continues: the job's own, or that of the savepoint it started from."""
        return self.batch or self.saved_batch

    def operator(self, name: str) -> Operator | None:
        """Return the operator of that name, or None."""
        return next((operator for operator in self.operators if operator.name == name), None)

    def file_refs(self) -> Iterator[FileRef]:
        """Yield a reference to every file it names: state files, then outputs."""
        for operator in self.operators:
            for slot in operator.slots:
                for file in slot.files:
                    yield file.place
        for output in self.outputs:
            yield output.place

    def describe(self) -> str:
        """Return a description for messages."""
        batch = "before the first batch" if self.batch is None else f"after batch {self.batch.id}"
        return f"checkpoint {self.number} of job {self.job!r} ({self.kind}, {batch}, written by {self.writer})"


def requirements(outputs: Iterable[Output]) -> tuple[str, ...]:
    """What a reader of a manifest with these outputs must support."""
    return (PARQUET_OUTPUTS,) if any(output.format == "parquet" for output in outputs) else ()


def plain(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as plain data, for display."""
    result: dict[str, Any] = msgspec.to_builtins(manifest)
    return result
