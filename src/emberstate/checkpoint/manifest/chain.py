"""Chains: the state files that a slot's state consists of, and how rewrites keep the list short.

A commit appends a delta. From time to time a rewrite, which the slot writes in the background, replaces the files it
was made from: several deltas merged into one, or a base of everything.

A rewrite names the files it replaces by their ids and key groups. It is adopted only if the chain still contains
exactly those files, one after the other. Ids are never reused, so the state it was made from is an ancestor of the
present one. Files that were appended since stay. The key groups count because, after two changes of parallelism, one
file may be in a chain twice, for different key groups.

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

    #: The most deltas in a chain: a slot that has so many waits for its rewrite.
    most_files: int = 32
    #: Deltas after which a rewrite begins; the rest is for batches that run meanwhile.
    rewrite_at: int = 12
    #: A base is written when the deltas have this share of the bytes of the base below them.
    base_ratio: float = 0.5
    #: Deltas that together are smaller than this are merged, whatever their share.
    small_bytes: int = 1024 * 1024


DEFAULT_POLICY: Final = ChainPolicy()


class RewriteOrder(msgspec.Struct, frozen=True):
    """An order to a slot to write a base of the chain's state, or to merge some deltas, in the background."""

    id: Ident
    #: The checkpoint whose state it rewrites, and the chain there.
    number: int
    chain: SlotChain
    #: Neighbours in the chain to merge; empty for a base.
    merge: tuple[StateFile, ...] = ()


class Rewrite(msgspec.Struct, frozen=True):
    """The result of an order."""

    order: Ident
    #: Id and key groups of every file that it replaces.
    replaces: tuple[tuple[Ident, Groups], ...]
    files: tuple[StateFile, ...]

    @staticmethod
    def of(order: Ident, replaced: Sequence[StateFile], files: Sequence[StateFile]) -> Rewrite:
        """Return a rewrite that replaces `replaced`."""
        return Rewrite(order, tuple((file.id, file.groups) for file in replaced), tuple(files))


def plan_rewrite(chain: SlotChain, number: int, policy: ChainPolicy = DEFAULT_POLICY) -> RewriteOrder | None:
    """Return an order for a chain of checkpoint `number`; None if the chain is short enough."""
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
    """Return the longest end of a chain that can be merged and in which, but for the last `least` files, no file is
    more than twice as large as all after it together.

    So the number of times a row is rewritten grows with the logarithm of the number of deltas: measured with deltas of
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
    """Return the chain with the rewrite in it; or a text that says why it cannot be adopted."""
    present = [(file.id, file.groups) for file in chain.files]
    replaced = list(rewrite.replaces)
    if not replaced:
        return "it replaces nothing"
    start = present.index(replaced[0]) if replaced[0] in present else -1
    if start < 0 or present[start : start + len(replaced)] != replaced:
        return f"the chain does not contain the {len(replaced)} files that it replaces, from {replaced[0][0]!r}"
    if start and any(file.kind == "base" for file in rewrite.files):
        return "it is a base, but files precede those that it replaces"
    files = (*chain.files[:start], *rewrite.files, *chain.files[start + len(replaced) :])
    return msgspec.structs.replace(chain, files=files)


def repartition(chains: Sequence[SlotChain], ranges: Sequence[KeyGroupRange], token: str) -> tuple[SlotChain, ...]:
    """Return the chains of the same state for slots with other key groups.

    Each gets, of every old chain, the files of its key groups, in order. Every key group was in one old chain, so the
    files of different old chains may follow each other in any order. `token` begins the names of the new attempts.
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
