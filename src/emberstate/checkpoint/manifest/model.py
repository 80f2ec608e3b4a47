"""The manifest: one small file that names everything a checkpoint consists of.

A checkpoint exists when its manifest does, and is what the manifest says: per operator the key groups of
every slot with a chain of state files (bases, then deltas, to be applied in order), the output files of the
batch, the source's position, the watermark. docs/format.md specifies it.

Invariants (`check` holds a manifest to them, whoever wrote it)
1. The slots of an operator cover all key groups, each once, in order.
2. A state file is taken for key groups of its slot only, and for each once. Within a slot, a base stands
   before every delta of the same key groups.
3. Paths are plain relative names (`storage.check_path`) below the folders of `layout`.
4. A chain is bounded, and so is the manifest.

Thread safety: values are immutable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from emberstate.checkpoint.files.meta import library_version
from emberstate.checkpoint.manifest.decisions import FileDecisions, PastChoices
from emberstate.checkpoint.manifest.envelope import open_sealed, parse, seal
from emberstate.checkpoint.manifest.layout import CHECKPOINTS, OUTPUT, SAVEPOINTS, STATE
from emberstate.errors import CorruptionError, EmberstateError, RestoreRefusedError
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism
from emberstate.storage.paths import is_path

#: What this reader understands beyond version 1: nothing yet.
KNOWN_REQUIREMENTS: Final[frozenset[str]] = frozenset()

#: State files of one slot that a manifest may list: far more than `chain` ever lets it have.
MAX_CHAIN_FILES: Final = 20_000

_FOLDERS: Final = (STATE, OUTPUT, CHECKPOINTS, SAVEPOINTS)

Number = Annotated[int, Meta(ge=0, le=2**62)]
Micros = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
Name = Annotated[str, Meta(min_length=1, max_length=500)]
Ident = Annotated[str, Meta(max_length=200)]
Path = Annotated[str, Meta(min_length=1, max_length=512)]
Groups = tuple[Annotated[int, Meta(ge=0, le=32767)], Annotated[int, Meta(ge=0, le=32767)]]
#: `FileDecisions.to_dict`: nothing else is even decoded, so that a hostile file cannot make it large.
Decisions = dict[str, list[str] | dict[str, str | int | dict[str, str] | None]]
#: `PastChoices.to_dict`, likewise: decisions, and a list of names.
StoredChoices = dict[str, list[str] | Decisions]


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where bytes stand: a file, or a part of a bundle."""

    path: Path
    size: Number
    checksum: Checksum
    offset: Number = 0


class StateFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A state file, and the key groups that are taken from it."""

    id: Ident
    kind: Literal["base", "delta"]
    groups: Groups
    place: FileRef
    #: Checksum of the file's footer, which holds those of its parts: so a part can be verified by itself.
    seal: Checksum
    #: The checkpoint that it was written for.
    number: Number
    #: What was decided about its states when it was restored into a changed program (`FileDecisions.to_dict`).
    evolution: Decisions = {}

    @property
    def key_groups(self) -> KeyGroupRange:
        """The key groups that are taken from it."""
        return KeyGroupRange(*self.groups)

    @property
    def decisions(self) -> FileDecisions:
        """The same as a value."""
        return FileDecisions.from_dict(self.evolution)


class SlotChain(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one slot: its key groups, and the files to apply in order."""

    groups: Groups
    #: The attempt whose state this is: a slot that holds it need not restore.
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
    #: What was decided at earlier starts (`PastChoices.to_dict`), so that options given again are no mistakes.
    settled: StoredChoices = {}

    @property
    def parallelism(self) -> int:
        """How many slots it has."""
        return len(self.slots)


class Output(msgspec.Struct, frozen=True):
    """Rows that a slot gave, stored as long as a checkpoint that names them."""

    operator: Name
    name: Name
    slot: Number
    rows: Number
    place: FileRef


class Stage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stage of the program that ran the batch, and what it could put out."""

    name: Name
    #: The schema of every output by its name, in the runner's words.
    outputs: dict[Name, str] = {}


class Holder(msgspec.Struct, frozen=True):
    """A process that has, or had, the right to commit."""

    incarnation: Number
    host: Ident
    pid: Number
    started: Ident
    token: Ident

    def __str__(self) -> str:
        return f"incarnation {self.incarnation} (host {self.host}, pid {self.pid}, started {self.started})"


class Idle(msgspec.Struct, frozen=True):
    """Since when no row has come."""

    #: The processing time of the last batch that had rows.
    since: Micros
    #: How far its rows, or the time before them, had brought event time.
    watermark: Micros


class InputTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far one of two inputs has got."""

    #: The processing time of the last batch that had rows of it; of the first batch, if none had.
    since: Micros
    max_event_time: Micros | None = None


class Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The batch whose end a checkpoint is."""

    id: Number
    #: Which query's batch ids these are, and its source's position: text that only the runner understands.
    query: str
    source: str
    processing_time: Micros
    watermark: Micros | None = None
    max_event_time: Micros | None = None
    #: Of a batch without rows.
    idle: Idle | None = None
    #: How far event time has got in stages after the one that it comes from; None if the writer did not know of it.
    stage_watermarks: Annotated[dict[Name, Micros], Meta(max_length=1000)] | None = None
    #: Of two inputs; empty if there is one, or the writer did not tell them apart.
    inputs: Annotated[tuple[InputTime, ...], Meta(max_length=2)] = ()
    #: The input was said to end with it: event time got to its end.
    ended: bool = False

    def of_inputs(self, count: int) -> tuple[InputTime, ...]:
        """The same for so many inputs: if they were not told apart, each may have got as far as all of them had."""
        if len(self.inputs) == count:
            return self.inputs
        return (InputTime(self.processing_time, self.max_event_time),) * count


class Parent(msgspec.Struct, frozen=True):
    """The checkpoint that one follows."""

    number: Number
    id: Ident


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A checkpoint."""

    job: Name
    id: Ident
    number: Number
    #: An opening is what a start finds, under its own incarnation; it has no batch of its own.
    kind: Literal["opening", "commit", "savepoint"]
    writer: Holder
    created: Micros
    #: The id of the newest commit up to here, or of a later opening that went back to it on purpose: what a
    #: batch's intent is filed under. Empty before the first.
    origin: Ident = ""
    #: The identity of the location, made at random by the first opening there and carried along: whoever deletes
    #: everything and starts again has another. Empty in what was written before there was one.
    location: Ident = ""
    parent: Parent | None = None
    batch: Batch | None = None
    #: The batch whose end the savepoint was that the job started from, until a batch of its own has committed.
    saved_batch: Batch | None = None
    operators: tuple[Operator, ...] = ()
    outputs: tuple[Output, ...] = ()
    #: Those of the program that ran the batch, in order: what `outputs` are. Empty where nobody recorded them.
    stages: tuple[Stage, ...] = ()
    #: A later batch had committed before the job was set back to here, and `outputs` were gone by then.
    delivered: bool = False
    #: How long parts of the batch took, by name: for people.
    micros: Annotated[dict[Annotated[str, Meta(max_length=50)], Number], Meta(max_length=20)] = {}
    requires: tuple[Ident, ...] = ()
    library: Ident = msgspec.field(default_factory=library_version)

    def to_bytes(self) -> bytes:
        """The file."""
        return seal("manifest", self)

    @property
    def times(self) -> Batch | None:
        """The batch whose times the next one goes on from: the job's own, or that of the savepoint it started from."""
        return self.batch or self.saved_batch

    def operator(self, name: str) -> Operator | None:
        """The operator of that name."""
        return next((operator for operator in self.operators if operator.name == name), None)

    def file_refs(self) -> Iterator[FileRef]:
        """Every place that it names: state files, then outputs."""
        for operator in self.operators:
            for slot in operator.slots:
                for file in slot.files:
                    yield file.place
        for output in self.outputs:
            yield output.place

    def describe(self) -> str:
        """How messages call it."""
        batch = "before the first batch" if self.batch is None else f"after batch {self.batch.id}"
        return f"checkpoint {self.number} of job {self.job!r} ({self.kind}, {batch}, written by {self.writer})"


def open_manifest(data: bytes, name: str) -> Manifest:
    """A manifest from its bytes; `name` is the file's.

    Raises:
        CorruptionError: it is not what was written, or breaks an invariant.
        RestoreRefusedError: a later version wrote it.
    """
    return check(open_sealed("manifest", data, Manifest, name=name), name)


def parse_manifest(body: bytes, name: str) -> Manifest:
    """The same for the body alone, whose checksum nobody compared."""
    return check(parse(body, Manifest, name), name)


def check(manifest: Manifest, name: str) -> Manifest:
    """The manifest itself, if it keeps the invariants."""
    unknown = sorted(set(manifest.requires) - KNOWN_REQUIREMENTS)
    if unknown:
        raise RestoreRefusedError(
            f"{name}: it requires {unknown[:10]} to be understood, written by emberstate {manifest.library}; this "
            f"reader does not. Use that or a later version of emberstate."
        )
    try:
        _check_operators(manifest.operators)
        for place in manifest.file_refs():
            check_ref(place)
    except EmberstateError as error:
        raise CorruptionError(f"{name}: the manifest makes no sense: {error!s:.300}") from None
    return manifest


def _check_operators(operators: tuple[Operator, ...]) -> None:
    names = [operator.name for operator in operators]
    if len(set(names)) != len(names):
        raise CorruptionError(f"operators have the same name: {names!r:.200}")
    for operator in operators:
        check_max_parallelism(operator.max_parallelism)
        if KeySchema(list(operator.key_schema)).type_names != operator.key_schema:
            raise CorruptionError(f"operator {operator.name!r} has key schema {operator.key_schema!r:.200}")
        if operator.settled:
            PastChoices.from_dict(operator.settled)
        _check_slots(operator)


def _check_slots(operator: Operator) -> None:
    bounds = [-1, *itertools.chain.from_iterable(slot.groups for slot in operator.slots), operator.max_parallelism]
    pairs = itertools.pairwise(bounds)
    # End of one and start of the next are neighbours; start and end of one are in order.
    if any(a + 1 != b if number % 2 == 0 else a > b for number, (a, b) in enumerate(pairs)):
        raise CorruptionError(
            f"the slots of operator {operator.name!r} do not cover its {operator.max_parallelism} key groups once: "
            f"{[slot.groups for slot in operator.slots]!r:.200}"
        )
    for slot in operator.slots:
        _check_chain(operator.name, slot)


def _check_chain(operator: str, slot: SlotChain) -> None:
    low, high = slot.groups
    written = bytearray(high - low + 1)
    taken: dict[object, list[Groups]] = {}
    for file in slot.files:
        first, last = file.groups
        if not low <= first <= last <= high:
            raise CorruptionError(f"a file of key groups {file.groups} in slot {slot.groups} of operator {operator!r}")
        if file.evolution:
            FileDecisions.from_dict(file.evolution)
        taken.setdefault(file.id, []).append(file.groups)
        taken.setdefault((file.place.path, file.place.offset), []).append(file.groups)
        part = slice(first - low, last - low + 1)
        if file.kind == "base" and any(written[part]):
            raise CorruptionError(f"base {file.id!r} of operator {operator!r} follows files of the same key groups")
        written[part] = b"\x01" * (last - first + 1)
    for what, groups in taken.items():
        if any(after[0] <= before[1] for before, after in itertools.pairwise(sorted(groups))):
            raise CorruptionError(f"file {what!r:.200} of operator {operator!r} is taken twice for the same key groups")


def check_ref(place: FileRef) -> None:
    """Refuse a place that no file of a checkpoint can have."""
    if not is_path(place.path) or place.path.split("/")[0] not in _FOLDERS:
        raise CorruptionError(f"a file cannot be called {place.path!r:.200}")


def plain(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data, to show."""
    result: dict[str, Any] = msgspec.to_builtins(manifest)
    return result
