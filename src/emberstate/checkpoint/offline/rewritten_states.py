"""`RewrittenState`: the rows of a state for a rewritten savepoint, and the file that each belongs in.

A file holds a state with one type. If a chain has several types of a state, because the program changed, the rows go
into as many files, called layers: layer 0 is a base, the others are deltas to be applied after it, in order. Values and
user keys are one cell each, so any order of layers is right for them. Elements of a list must stay in order, so an
element is in the layer of the one before it, or a later one.

Only keys are decoded, since their group may change; no class of the job is needed.

Thread safety: one thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from emberstate.checkpoint.files.meta import TIMERS, TIMERS_PREFIX, StoredState
from emberstate.checkpoint.manifest.decisions import FileDecisions
from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.entries import Entry, WriterSchema, schema_in
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.errors import RestoreRefusedError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.changes import Op

_REPLACED: Final = int(Op.REPLACED)
_PUT: Final = int(Op.PUT)
_APPENDED: Final = int(Op.APPENDED)


class RewrittenRow(NamedTuple):
    """A row and its layer; `state` is the position among all states."""

    key_group: int
    layer: int
    state: int
    key: bytes
    namespace: bytes
    op: int
    user_key: bytes | None
    value: bytes | None
    stamp: int | None
    step: int


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """A state in one of the files: its declaration there, and the decisions to store beside the file."""

    stored: StoredState
    decisions: FileDecisions


class RewrittenState:
    """One state of an operator, under its new name."""

    def __init__(self, reader: CheckpointReader, operator: Operator, address: str, name: str) -> None:
        """`address` is the name in the checkpoint, `name` the new one."""
        self.address = address
        self.name = name
        self.table: StateColumns = reader.table(operator.name, address)
        whole = KeyGroupRange(0, operator.max_parallelism - 1)
        writers: list[WriterSchema] = []
        layers: list[Layer] = []
        # All slots run the same program, so a file of an older checkpoint has the older type.
        ages = {file.seal: file.number for slot in operator.slots for file in slot.files}
        for part in sorted(reader.parts(operator.name, whole), key=lambda part: ages[part.reader.seal]):
            place = schema_in(part, address)
            if place is None:
                continue
            layer = _layer(place[1], part.decisions, name)
            if not writers or writers[-1] != place[1]:
                writers.append(place[1])
                layers.append(layer)
            elif layer != layers[-1]:
                raise self._refusal("files of one type have other decisions beside them")
        self._writers = writers
        self.layers = layers
        namespaces = {writer.stored.namespace for writer in writers}
        if len(namespaces) > 1:
            raise self._refusal("its namespaces were of another type before")

    def rows(self, entry: Entry, key_group: int, state: int) -> Iterator[RewrittenRow]:
        """Yield the rows of an entry, for a key group."""
        kind, layer = self.table.state.kind, 0
        for number, (writer, user_key, value, stamp) in enumerate(entry.cells, start=1):
            own = stamp if writer.stored.ttl is not None else None  # else it was decided at a restore
            if kind == "list":
                layer, op, step = self._layer_of(writer, layer), _APPENDED, number
            else:
                op, step = (_PUT, 1) if kind in ("map", TIMERS) else (_REPLACED, 0)
                layer = self._layer_of(writer, 0)
            yield RewrittenRow(key_group, layer, state, entry.key, entry.namespace, op, user_key, value, own, step)

    def _layer_of(self, writer: WriterSchema, start: int) -> int:
        for layer in range(start, len(self._writers)):
            if self._writers[layer] == writer:
                return layer
        raise self._refusal("its elements were written under types that alternate")

    def _refusal(self, why: str) -> RestoreRefusedError:
        return RestoreRefusedError(
            f"{self.table.state.label} cannot be rewritten: {why}. Start the job from it, let it run until its chains "
            f"are bases, and rewrite a savepoint of that.",
            state=self.table.state.name,
        )


def _layer(writer: WriterSchema, decisions: FileDecisions, name: str) -> Layer:
    """Return a writer's schema for a file of its own, under the new name."""
    old = writer.stored.address
    stored = dataclasses.replace(writer.stored, name=name.removeprefix(TIMERS_PREFIX))
    fields: Mapping[str, Mapping[str, str]] = {name: dict(writer.renames)}
    stamps = {name: decisions.stamps[old]} if old in decisions.stamps else {}
    return Layer(stored, FileDecisions(rename_fields=fields, stamps=stamps))
