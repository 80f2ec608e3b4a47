"""`ComparedCheckpoint`: one of two checkpoints that are compared, with the names of the newer one.

Also: which key groups may differ between the two.

Thread safety: one thread at a time, as the readers.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pyarrow.compute as pc

from emberstate.checkpoint.files.meta import TIMERS_PREFIX, StoredState
from emberstate.checkpoint.manifest.catalogue import naming_missing
from emberstate.checkpoint.manifest.decisions import FileDecisions
from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.entries import WriterSchema, schema_in
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.operators import past_choices_of
from emberstate.errors import RestoreRefusedError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange


@dataclasses.dataclass
class ComparedCheckpoint:
    """An operator in one of the two checkpoints."""

    reader: CheckpointReader
    name: str
    #: The renames between this checkpoint and the other.
    later: FileDecisions = dataclasses.field(default_factory=FileDecisions)

    @property
    def operator(self) -> Operator | None:
        """The operator; None if the checkpoint does not have it."""
        return self.reader.manifest.operator(self.name)

    def follow(self, newer: ComparedCheckpoint) -> None:
        """Use the names that states and fields have in a newer checkpoint."""
        if self.operator is None or newer.operator is None:
            return
        before, after = past_choices_of(self.operator).decisions, past_choices_of(newer.operator).decisions
        states = {old: new for old, new in after.rename_states.items() if before.rename_states.get(old) != new}
        fields = {}
        for state in after.rename_fields:
            done = before.fields_of(state)
            fields[state] = {path: new for path, new in after.fields_of(state).items() if done.get(path) != new}
        self.later = FileDecisions(rename_states=states, rename_fields=fields)

    def parts(self, groups: KeyGroupRange) -> list[FileSlice]:
        """Return the state files of some key groups, in the order to apply them."""
        if self.operator is None:
            return []
        found = self.reader.parts(self.name, groups)
        if not self.later:
            return found
        return [
            dataclasses.replace(part, decisions=part.decisions.then(self.later).restricted_to(part.reader.meta.states))
            for part in found
        ]

    def states(self) -> dict[str, StoredState]:
        """Return the states by their names in the newer checkpoint."""
        if self.operator is None:
            return {}
        found = {}
        for stored in self.reader.states(self.name):
            name = self.later.name_of(stored.address)
            assert name is not None
            found[name] = dataclasses.replace(stored, name=name.removeprefix(TIMERS_PREFIX))
        return found

    def writers(self, state: str) -> Iterator[WriterSchema]:
        """Return the schemas that the files have of a state."""
        groups = KeyGroupRange(0, 0 if self.operator is None else self.operator.max_parallelism - 1)
        found = (schema_in(part, state) for part in self.parts(groups))
        return (one[1] for one in found if one is not None)


def one_operator(old: ComparedCheckpoint, new: ComparedCheckpoint, name: str) -> Operator:
    """Return the operator, which must have the same key groups in both checkpoints, if both have it."""
    before, after = old.operator, new.operator
    if before is None and after is None:
        there = sorted({*old.reader.operators, *new.reader.operators})
        raise StateDeclarationError(f"neither checkpoint has an operator {name!r}; there are {there}", operator=name)
    if before is None or after is None:
        return after or before  # type: ignore[return-value]
    one, other = (before.key_schema, before.max_parallelism), (after.key_schema, after.max_parallelism)
    if one != other:
        raise RestoreRefusedError(
            f"operator {name!r} has keys of {list(one[0])} in {one[1]} key groups in one checkpoint, and of "
            f"{list(other[0])} in {other[1]} in the other: they cannot be compared by key group. Export both, and "
            f"compare the tables.",
            operator=name,
        )
    return after


def present_state(old: ComparedCheckpoint, new: ComparedCheckpoint, state: str) -> StoredState:
    """Return the state as it was last declared; it must be of the same kind in both checkpoints, if both have it."""
    before, after = old.states(), new.states()
    if state not in before and state not in after:
        raise StateDeclarationError(
            f"operator {new.name!r} has no state {state!r} in either checkpoint; there are {sorted({*before, *after})}",
            operator=new.name,
            state=state,
        )
    one, other = before.get(state), after.get(state)
    if one is None or other is None:
        return other or one  # type: ignore[return-value]
    if (one.kind, one.codec) != (other.kind, other.codec):
        raise RestoreRefusedError(
            f"{state!r} is a {one.kind} state ({one.codec}) in one checkpoint and a {other.kind} state "
            f"({other.codec}) in the other: it was dropped and replaced. Export both, and compare the tables.",
            operator=new.name,
            state=state,
        )
    return other


def touched_groups(old: ComparedCheckpoint, new: ComparedCheckpoint, state: str, count: int) -> Iterator[int]:
    """Yield the key groups in which the state may differ."""
    whole = KeyGroupRange(0, count - 1)
    before, after = old.parts(whole), new.parts(whole)
    bounds = {0, count}
    for part in (*before, *after):
        bounds |= {part.key_groups.start, part.key_groups.end + 1}
    edges = sorted(bounds)
    for start, stop in itertools.pairwise(edges):
        groups = KeyGroupRange(start, stop - 1)
        was = [part for part in before if part.key_groups.intersection(groups)]
        now = [part for part in after if part.key_groups.intersection(groups)]
        names = [[(part.reader.seal, part.decisions) for part in chain] for chain in (was, now)]
        if names[1][: len(was)] == names[0]:
            with naming_missing(new.reader.storage, new.reader.manifest):
                yield from _groups_in(now[len(was) :], state, groups)
        else:
            yield from groups


def _groups_in(parts: list[FileSlice], state: str, groups: KeyGroupRange) -> set[int]:
    """Return the key groups for which these files have rows of the state."""
    found: set[int] = set()
    for part in parts:
        found_at = schema_in(part, state)
        if found_at is None:
            continue
        for _, batch in part.reader.batches(groups):
            ours = batch.column("key_group").filter(pc.equal(batch.column("state"), found_at[0]))
            found.update(group for group in pc.unique(ours).to_pylist() if group in groups)
    return found
