"""Chains: which state files a slot's state consists of, and how the list is kept short.

A commit appends a delta. From time to time a rewrite, made in the background by the slot that holds the
state, takes the place of the files it was made from: several deltas merged into one, or a base of everything.

A rewrite names the files it replaces by their ids and key groups. It is adopted only if the chain still begins
with, or contains in one piece, exactly those files: ids are never reused, so this says that the state it was
made from is an ancestor of the present one, attempt by attempt. What was appended since stays. The key groups
belong to it since after two changes of parallelism one file may be in a chain twice, for different ones.

Thread safety: pure functions on immutable values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

import msgspec

from emberstate.checkpoint.manifest.layout import new_id
from emberstate.checkpoint.manifest.model import Groups, Ident, SlotChain, StateFile
from emberstate.keygroups import KeyGroupRange


@dataclasses.dataclass(frozen=True, slots=True)
class ChainPolicy:
    """When a chain is rewritten."""

    #: Deltas that a chain has at most: a slot that is so far behind waits for its rewrite.
    most_files: int = 32
    #: Deltas after which a rewrite begins; the rest is room for the batches that run meanwhile.
    rewrite_at: int = 12
    #: A base is written when the deltas have this share of the bytes of the base below them.
    base_ratio: float = 0.5
    #: Deltas that together are smaller than this are merged, whatever their share.
    small_bytes: int = 1024 * 1024


DEFAULT_POLICY: Final = ChainPolicy()


class RewriteOrder(msgspec.Struct, frozen=True):
    """What a slot is asked to write in the background: a base of the chain's state, or some deltas merged."""

    id: Ident
    #: The checkpoint whose state it is about, and the chain there.
    number: int
    chain: SlotChain
    #: Neighbours in the chain to merge into one; none for a base.
    merge: tuple[StateFile, ...] = ()


class Rewrite(msgspec.Struct, frozen=True):
    """What a slot has written."""

    order: Ident
    #: Of every file that it takes the place of, the id and the key groups.
    replaces: tuple[tuple[Ident, Groups], ...]
    files: tuple[StateFile, ...]

    @staticmethod
    def of(order: Ident, replaced: Sequence[StateFile], files: Sequence[StateFile]) -> Rewrite:
        """One that takes the place of `replaced`."""
        return Rewrite(order, tuple((file.id, file.groups) for file in replaced), tuple(files))


def plan_rewrite(chain: SlotChain, number: int, policy: ChainPolicy = DEFAULT_POLICY) -> RewriteOrder | None:
    """What should be rewritten of a chain as it is in checkpoint `number`; None if it is short enough."""
    deltas = [file for file in chain.files if file.kind == "delta"]
    if not deltas:
        return None
    delta_bytes = sum(file.place.size for file in deltas)
    base_bytes = sum(file.place.size for file in chain.files) - delta_bytes
    heavy = delta_bytes > max(policy.small_bytes, policy.base_ratio * base_bytes)
    if len(deltas) < policy.rewrite_at and not (heavy and base_bytes):
        return None
    least = max(2, policy.rewrite_at // 3)
    run = _small_neighbours(chain.files, least)
    if not heavy and len(run) >= least:
        return RewriteOrder(new_id(), number, chain, tuple(run))
    return RewriteOrder(new_id(), number, chain)


def _small_neighbours(files: Sequence[StateFile], least: int) -> list[StateFile]:
    """The longest end of a chain that can be one file and in which, but for the last `least`, no file is larger than
    all after it together, twice over.

    So a row is written anew a number of times that grows with the logarithm of the deltas: measured with deltas of
    equal size, 4 times for 1,000 of them, 7 for 10,000, 9 for 100,000.
    """
    run: list[StateFile] = []
    size = 0
    for file in reversed(files):
        if file.kind == "base" or file.evolution or (run and file.groups != run[-1].groups):
            break
        if len(run) >= least and file.place.size > 2 * size:
            break
        run.append(file)
        size += file.place.size
    return run[::-1]


def adopt(chain: SlotChain, rewrite: Rewrite) -> SlotChain | str:
    """The chain with the rewrite in the place of what it replaces; or why not, in words."""
    present = [(file.id, file.groups) for file in chain.files]
    replaced = list(rewrite.replaces)
    if not replaced:
        return "it replaces nothing"
    start = present.index(replaced[0]) if replaced[0] in present else -1
    if start < 0 or present[start : start + len(replaced)] != replaced:
        return f"the chain does not hold the files that it replaces ({len(replaced)}, from {replaced[0][0]!r}): " + (
            "its state is of another lineage"
        )
    if start and any(file.kind == "base" for file in rewrite.files):
        return "it is a base, and files stand before what it replaces"
    files = (*chain.files[:start], *rewrite.files, *chain.files[start + len(replaced) :])
    return msgspec.structs.replace(chain, files=files)


def repartition(chains: Sequence[SlotChain], ranges: Sequence[KeyGroupRange], token: str) -> tuple[SlotChain, ...]:
    """The same state for other slots: each gets, of every old chain, what concerns its key groups, in order.

    Every key group was in one old chain, so the files of different old chains may follow each other in any
    order. `token` makes up the attempts of slots that nobody holds yet.
    """
    if [chain.key_groups for chain in chains] == list(ranges):
        return tuple(chains)
    made = []
    for wanted in ranges:
        files: list[StateFile] = []
        for chain in chains:
            files += [
                msgspec.structs.replace(file, groups=(part.start, part.end))
                for file in chain.files
                if (part := file.key_groups.intersection(wanted))
            ]
        made.append(SlotChain((wanted.start, wanted.end), f"{token}/{wanted.start}-{wanted.end}", tuple(files)))
    return tuple(made)
