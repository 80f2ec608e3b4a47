"""Assigns slots to executors.

Every executor gets its share of the slots, by its cores. A slot stays as long as its executor is alive and has no more
than its share: a slot that moves restores its state.

Thread safety: pure functions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping


def shares(parallelism: int, cores: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """The number of slots of each executor, by its cores, rounded so that few slots move. Ties go to the first ones.

    >>> shares(5, {"0": 1, "1": 1}, {"0": 1, "1": 4})
    {'0': 2, '1': 3}
    """
    total = sum(cores.values())
    share = {executor: parallelism * count // total for executor, count in cores.items()}
    # One more for those that have one more already, then for those that lose most by rounding.
    rest = {executor: parallelism * count % total for executor, count in cores.items()}
    by_claim = sorted(
        (one for one in cores if rest[one] > 0), key=lambda one: (held.get(one, 0) <= share[one], -rest[one])
    )
    for executor in by_claim[: parallelism - sum(share.values())]:
        share[executor] += 1
    return share


def preference(job: str, executors: Iterable[str]) -> list[str]:
    """The executors in an order that differs by job, so that jobs with few slots do not all choose the same.

    >>> preference("cards", ["1", "2", "3"]) == preference("cards", ["3", "2", "1"])
    True
    """
    return sorted(executors, key=lambda one: (zlib.crc32(f"{one} of {job}".encode()), one))


def assign(parallelism: int, cores: Mapping[str, int], before: Mapping[int, str]) -> dict[int, str]:
    """An executor of `cores` for every slot; `before` has the executors of the slots so far. `cores` is not empty.

    >>> assign(4, {"0": 1, "1": 1}, {})
    {0: '0', 1: '1', 2: '0', 3: '1'}
    >>> assign(4, {"1": 1}, {0: '0', 1: '1', 2: '0', 3: '1'})
    {0: '1', 1: '1', 2: '1', 3: '1'}
    >>> assign(4, {"1": 1, "2": 1}, {0: '1', 1: '1', 2: '1', 3: '1'})
    {0: '1', 1: '1', 2: '2', 3: '2'}
    """
    held: dict[str, int] = {}
    for slot, executor in before.items():
        if slot < parallelism and executor in cores:
            held[executor] = held.get(executor, 0) + 1
    room = shares(parallelism, cores, held)
    placed: dict[int, str] = {}
    for slot in range(parallelism):
        executor = before.get(slot, "")
        if room.get(executor, 0) > 0:
            placed[slot] = executor
            room[executor] -= 1
    for slot in range(parallelism):
        if slot not in placed:
            executor = max(room, key=lambda one: room[one])  # in turn, so that neighbours are apart
            placed[slot] = executor
            room[executor] -= 1
    return dict(sorted(placed.items()))
