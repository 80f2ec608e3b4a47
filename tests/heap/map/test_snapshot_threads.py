"""A snapshot is read and released by other threads while the owner goes on: what they read is what was there.

The switch interval is set so small that threads meet inside every operation. What is random has a fixed seed;
how the threads interleave is the machine's, so a failure may need more than one run to come back: the seed
says what was done.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE
from tests.heap.conftest import COMPILED
from tests.heap.model import MUTABLE

NS = ("a", "b")
ROUNDS = 60 if COMPILED else 20


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Let threads switch as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def encoded(entries: Any) -> bytes:
    """The content of a map or snapshot as bytes that are the same for the same content."""
    return msgspec.msgpack.encode(sorted(entries))


class Owner:
    """The owner's side: random changes to some maps, and the snapshots it hands to readers."""

    def __init__(self, mutable: bool, nested: bool, seed: int) -> None:
        print(f"seed {seed}")  # noqa: T201
        self.chance = random.Random(seed)
        self.registry = SnapshotRegistry()
        self.mutable = mutable
        kind = MUTABLE if mutable else IMMUTABLE
        self.maps: list[Any] = [CopyOnWriteStateMap(kind, self.registry, 4) for _ in range(2)]
        if nested:
            self.maps.append(NestedStateMap(kind, self.registry))
        self.keys = 50

    def change(self, times: int) -> None:
        """Do so many random operations; the key space grows, and so do the maps."""
        chance = self.chance
        for _ in range(times):
            states = chance.choice(self.maps)
            pair = (chance.randrange(self.keys), chance.choice(NS))
            what = chance.random()
            if what < 0.5:
                states.put(*pair, [chance.randrange(9)] if self.mutable else chance.randrange(9))
            elif what < 0.65:
                states.remove(*pair)
            else:
                value = states.get(*pair)
                if self.mutable and value is not None:
                    value.append(chance.randrange(9))
                    del value[:-4]
        self.keys = min(4_000, self.keys + times // 10)

    def snapshot(self) -> tuple[Any, list[bytes]]:
        """Take a snapshot and say what it must read as, for ever."""
        point = self.registry.snapshot()
        return point, [encoded(states) for states in self.maps]


class Readers:
    """Threads that read what they are given until it is released, and keep what they find wrong."""

    def __init__(self, owner: Owner, threads: int) -> None:
        self.owner = owner
        self.work: queue.Queue[tuple[Any, list[bytes]] | None] = queue.Queue(maxsize=3)
        self.problems: list[str] = []
        self.reads = [0] * threads
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self, number: int) -> None:
        chance = random.Random(number)
        while (given := self.work.get()) is not None:
            try:
                self.reads[number] += self.read(*given, chance)
            except Exception as error:
                self.problems.append(repr(error))
            finally:
                given[0].release()

    def read(self, point: Any, expected: list[bytes], chance: random.Random) -> int:
        """Read all maps, once or twice; how many that were."""
        times = chance.randrange(1, 3)
        for _ in range(times):
            for number, states in enumerate(self.owner.maps):
                opened = states.open(point)
                if encoded(opened) != expected[number]:
                    self.problems.append(f"map {number} of snapshot {point.version} reads as something else")
                for key, namespace, state in msgspec.msgpack.decode(expected[number])[:20]:
                    if opened.get(key, namespace) != state:
                        self.problems.append(f"{key} of snapshot {point.version} is another")
                if len(opened) != len(msgspec.msgpack.decode(expected[number])):
                    self.problems.append(f"map {number} of snapshot {point.version} has another size")
        return times * len(self.owner.maps)

    def stop(self) -> None:
        for _ in self.threads:
            self.work.put(None)
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize("mutable", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_readers_see_what_was_there_while_the_owner_goes_on(mutable: bool, nested: bool) -> None:
    """Catches: a bucket changed before its old head is saved, a shared entry changed in place, an image moved
    by a release while it is read, a page freed under a reader.
    """
    owner = Owner(mutable, nested, seed=5)
    readers = Readers(owner, threads=2)
    try:
        for _ in range(ROUNDS):
            owner.change(100)
            readers.work.put(owner.snapshot())
            owner.change(100)
    finally:
        readers.stop()

    assert readers.problems == []
    assert sum(readers.reads) >= ROUNDS * len(owner.maps)
    for states in owner.maps:
        states.check_invariants()
    owner.registry.snapshot().release()
    assert owner.registry.live == []


def test_readers_see_what_was_there_while_the_owner_rolls_back() -> None:
    """Catches: a roll-back that puts back heads which a reader of a newer snapshot has not read yet."""
    owner = Owner(mutable=True, nested=False, seed=6)
    readers = Readers(owner, threads=2)
    try:
        for _ in range(ROUNDS):
            owner.change(50)
            start, before = owner.snapshot()
            owner.change(50)
            readers.work.put(owner.snapshot())
            owner.change(50)
            owner.registry.roll_back(start)
            assert [encoded(states) for states in owner.maps] == before
            start.release()
    finally:
        readers.stop()

    assert readers.problems == []
    for states in owner.maps:
        states.check_invariants()


def test_a_read_that_loses_the_race_against_release_says_so() -> None:
    """Catches: a reader that goes on with pages of a later time when its snapshot is released under it."""
    owner = Owner(mutable=False, nested=False, seed=7)
    owner.keys = 4_000
    owner.change(6_000)
    outcomes = {"read": 0, "refused": 0}
    for number in range(20):
        point, expected = owner.snapshot()
        timer = threading.Timer(number * 1e-4, point.release)
        timer.start()
        try:
            whole = encoded(owner.maps[0].open(point))
            outcomes["read"] += whole == expected[0]
        except RuntimeError as error:
            assert "was released" in str(error)
            outcomes["refused"] += 1
        timer.join()
        owner.change(50)

    assert sum(outcomes.values()) == 20
