"""`opened_operators`: the state of a found checkpoint, for the operators and slots of the present program.

Operators are matched by name, their states by `check_restore`. If the slots have changed, each gets the chains of its
key groups. The decisions about changed states are stored beside every file.

Thread safety: pure functions, apart from reading footers.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

import msgspec

from emberstate.checkpoint.files.bindings import StateBinding
from emberstate.checkpoint.files.meta import FileMeta
from emberstate.checkpoint.manifest.chain import repartition
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, FileDecisions, PastChoices
from emberstate.checkpoint.manifest.model import MAX_CHAIN_FILES, Manifest, Operator, SlotChain, StateFile
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.checkpoint.restore.check import check_restore
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.checkpoint.restore.verdict import RestoreVerdict
from emberstate.errors import RestoreRefusedError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeySchema, range_for_slot
from emberstate.state.ttl.config import TtlClock
from emberstate.storage.interface import Storage

log = logging.getLogger("emberstate.checkpoint")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSpec:
    """An operator as the program declares it, and its choices for stored states that changed."""

    name: str
    key_schema: KeySchema
    parallelism: int = 1
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    #: The states it declares; None if only its slots know them, which then check the restore.
    declared: Sequence[StateBinding] | None = None
    choices: RestoreChoices = NO_CHOICES

    def empty(self, token: str) -> Operator:
        """Return the operator without state."""
        ranges = [range_for_slot(self.max_parallelism, self.parallelism, slot) for slot in range(self.parallelism)]
        slots = tuple(SlotChain((r.start, r.end), f"{token}/{r.start}-{r.end}") for r in ranges)
        return Operator(self.name, self.key_schema.type_names, self.max_parallelism, slots)


def judge(storage: Storage, stored: Operator, spec: OperatorSpec, ttl_clock: TtlClock) -> RestoreVerdict:
    """Return the verdict on an operator's states; changes nothing."""
    files = [file for slot in stored.slots for file in slot.files]
    metas = _metas(storage, files)
    return check_restore(
        [(meta, file.decisions) for meta, file in zip(metas, files, strict=True)],
        spec.declared or (),
        key_schema=spec.key_schema,
        max_parallelism=spec.max_parallelism,
        choices=spec.choices,
        past_choices=past_choices_of(stored),
        ttl_clock=ttl_clock,
    )


def past_choices_of(operator: Operator) -> PastChoices:
    """Return the choices of earlier starts for an operator's states."""
    return PastChoices.from_dict(operator.settled) if operator.settled else NO_PAST_CHOICES


def opened_operators(
    storage: Storage,
    found: Manifest | None,
    specs: Sequence[OperatorSpec],
    token: str,
    now: int,
    drop_operators: Sequence[str] = (),
) -> tuple[Operator, ...]:
    """Return the operators of `specs` with their state in `found`; a new time to live begins at `now`."""
    ttl_clock = TtlClock()
    ttl_clock.processing_time = now
    ttl_clock.event_time = None if found is None or found.times is None else found.times.watermark
    stored = {} if found is None else {operator.name: operator for operator in found.operators}
    gone = sorted(stored.keys() - {spec.name for spec in specs} - set(drop_operators))
    if gone:
        raise RestoreRefusedError(
            f"the checkpoint has state of operators {gone}, which the program does not have (it has "
            f"{sorted(spec.name for spec in specs)}). Give each stage its former name, or drop the state: in a "
            f"pipeline by .restore(drop_stages=[…]), elsewhere by drop_operators=[…].",
            operator=gone[0],
            checkpoint=None if found is None else found.number,
        )
    for name in sorted(stored.keys() & set(drop_operators) - {spec.name for spec in specs}):
        log.warning("the state of operator %r is dropped (drop_operators)", name)
    return tuple(_opened(storage, stored.get(spec.name), spec, token, ttl_clock) for spec in specs)


def _opened(storage: Storage, stored: Operator | None, spec: OperatorSpec, token: str, ttl_clock: TtlClock) -> Operator:
    empty = spec.empty(token)
    if stored is None:
        return empty
    if (stored.key_schema, stored.max_parallelism) != (empty.key_schema, empty.max_parallelism):
        raise RestoreRefusedError(
            f"operator {spec.name!r} has keys of {list(stored.key_schema)} in {stored.max_parallelism} key groups, "
            f"declared are {list(empty.key_schema)} in {empty.max_parallelism} (max_parallelism): its keys would be in "
            f"other groups. Declare what is stored, or rewrite a savepoint offline.",
            operator=spec.name,
            expected=(stored.key_schema, stored.max_parallelism),
            found=(empty.key_schema, empty.max_parallelism),
        )
    slots, settled = stored.slots, stored.settled
    if spec.declared is not None:
        verdict = judge(storage, stored, spec, ttl_clock)
        try:
            verdict.refuse()
        except RestoreRefusedError as error:
            raise error.reworded(f"operator {spec.name!r}: {error}").located(operator=spec.name) from None
        decisions = iter(verdict.decisions)
        slots = tuple(_evolved(slot, [next(decisions) for _ in slot.files], token) for slot in slots)
        settled = {} if verdict.past_choices == NO_PAST_CHOICES else verdict.past_choices.to_dict()
    slots = repartition(slots, [slot.key_groups for slot in empty.slots], token)
    most = max(len(slot.files) for slot in slots)
    if most > MAX_CHAIN_FILES:
        raise RestoreRefusedError(
            f"operator {spec.name!r} has {stored.parallelism} slots; with {spec.parallelism}, one would begin with "
            f"{most} state files, but a manifest lists at most {MAX_CHAIN_FILES}. Choose a parallelism in between, run "
            f"some batches, which shortens the chains, and rescale again.",
            operator=spec.name,
            option="parallelism",
            expected=MAX_CHAIN_FILES,
            found=most,
        )
    return msgspec.structs.replace(empty, slots=slots, settled=settled)


def _evolved(slot: SlotChain, decisions: Sequence[FileDecisions], token: str) -> SlotChain:
    """Return the chain with the decisions. If they are new, a slot that holds the old state must restore."""
    evolved = [evolution.to_dict() for evolution in decisions]
    if evolved == [file.evolution for file in slot.files]:
        return slot
    files = tuple(
        msgspec.structs.replace(file, evolution=evolution) for file, evolution in zip(slot.files, evolved, strict=True)
    )
    start, end = slot.groups
    return SlotChain(slot.groups, f"{token}/{start}-{end}", files)


def _metas(storage: Storage, files: Sequence[StateFile]) -> list[FileMeta]:
    found: dict[str, FileMeta] = {}  # one file may serve several slots
    for file in files:
        if file.id not in found:
            found[file.id] = open_state_file(storage, file).meta
    return [found[file.id] for file in files]
