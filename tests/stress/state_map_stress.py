"""Random operations on state maps beside plain dicts, by the million: `python -m
tests.stress.state_map_stress`.

A run is a chain of phases. A phase has a registry with one to three maps (either class, either kind of value)
and a key space that is small (20 keys × 4 namespaces: everything happens to the same entries), or larger
(growth in the middle of everything). In a phase, transactions follow each other as they do in a slot: a
snapshot, some operations by a caller who also changes what it holds, then a commit, whose list of changes
must make the new content of the last committed one, or a roll-back. Other snapshots overlap them, are
released in any order, by any thread, after they were read and compared, or are rolled back to.

The seed is printed; the same seed does the same, on compiled and interpreted modules alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emberstate.heap.map.snapshots import SnapshotRegistry
from tests.heap.model import ModelledMap, ModelledSnapshot, Pair, make_map

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "state-map-stress.json"
NAMESPACES = ("n0", "n1", "n2", "n3")
HELD = 64


@dataclasses.dataclass
class Counts:
    """What a run has done."""

    operations: int = 0
    snapshots: int = 0
    rollbacks: int = 0
    commits: int = 0
    invariant_checks: int = 0
    rehashing_snapshots: int = 0


@dataclasses.dataclass(frozen=True)
class Scale:
    """What kind of phase it is: how many keys, and how often the O(entries) things are done."""

    keys: int
    transaction: int
    invariants_every: int
    extra_snapshot: float
    operations: int  # of one phase


SMALL = Scale(keys=20, transaction=200, invariants_every=1_000, extra_snapshot=0.01, operations=20_000)
GROWING = Scale(keys=500, transaction=60, invariants_every=500, extra_snapshot=0.03, operations=2_000)
LARGE = Scale(
    keys=10_000, transaction=2_000, invariants_every=5_000, extra_snapshot=0.0005, operations=20_000
)
PHASES = (SMALL, GROWING, GROWING, SMALL, GROWING, GROWING, SMALL, GROWING, GROWING, LARGE)


class Phase:
    """A registry, its maps, and a caller."""

    def __init__(self, chance: random.Random, scale: Scale, counts: Counts) -> None:
        self.chance = chance
        self.scale = scale
        self.counts = counts
        self.registry = SnapshotRegistry()
        self.maps: list[ModelledMap] = []
        self.held: list[list[Any]] = []  # what the caller holds and may change
        self.places: dict[int, tuple[list[Any], ModelledMap, Pair]] = {}  # by id: where it belongs
        self.extra: list[ModelledSnapshot] = []
        self.nested = scale is SMALL and chance.random() < 0.2
        self.add_map()
        self.operations: list[Callable[[ModelledMap, Pair], None]] = [
            self.get, self.get, self.get, self.get_and_change, self.get_and_change, self.put, self.put,
            self.put, self.put_and_get_old, self.remove, self.remove, self.remove_and_get_old, self.transform,
            self.transform_that_raises, self.look, self.change_held, self.change_held, self.put_held,
        ]

    def run(self, operations: int) -> None:
        """Do transactions until so many operations are done, then check everything."""
        committed = [map.frozen() for map in self.maps]
        done = 0
        while done < operations:
            start = self.take_snapshot()
            for _ in range(self.chance.randrange(self.scale.transaction)):
                self.step()
                done += 1
                self.counts.operations += 1
                if self.counts.operations % self.scale.invariants_every == 0:
                    self.check_invariants()
            if self.chance.random() < 0.15:
                self.roll_back(start)
            else:
                committed = self.commit(start, committed)
            self.release(start)
        for map in self.maps:
            map.check_live()
        for snapshot in self.extra:
            self.check(snapshot)
            self.release(snapshot)
        self.extra.clear()
        self.check_invariants()

    def step(self) -> None:
        """One operation, perhaps with a snapshot, a release or a roll-back before it."""
        chance = self.chance
        if chance.random() < self.scale.extra_snapshot:
            self.overlap()
        map = self.maps[chance.randrange(len(self.maps))]
        pair = (chance.randrange(self.scale.keys), NAMESPACES[chance.randrange(4)])
        self.operations[chance.randrange(len(self.operations))](map, pair)

    # -- operations ------------------------------------------------------------------------------------------

    def get(self, map: ModelledMap, pair: Pair) -> None:
        """Read, and keep what was handed out."""
        value = map.map.get(*pair)
        assert value == map.content.get(pair)
        if map.mutable and value is not None:
            map.lent[pair] = value
            self.hold(value, map, pair)

    def get_and_change(self, map: ModelledMap, pair: Pair) -> None:
        """Read, and change what was handed out."""
        value = map.map.get(*pair)
        assert value == map.content.get(pair)
        if map.mutable and value is not None:
            value.append(self.chance.randrange(10))
            del value[:-5]
            map.set(pair, value)
            self.hold(value, map, pair)

    def put(self, map: ModelledMap, pair: Pair) -> None:
        """Write."""
        value = self.value(map)
        map.map.put(*pair, value)
        map.set(pair, value)
        self.hold(value, map, pair)

    def put_and_get_old(self, map: ModelledMap, pair: Pair) -> None:
        """Write, and keep what was there."""
        value = self.value(map)
        old = map.map.put_and_get_old(*pair, value)
        assert old == map.content.get(pair)
        map.set(pair, value)
        self.hold(old, map, pair)

    def remove(self, map: ModelledMap, pair: Pair) -> None:
        """Remove."""
        assert map.map.remove(*pair) == (pair in map.content)
        map.drop(pair)

    def remove_and_get_old(self, map: ModelledMap, pair: Pair) -> None:
        """Remove, and keep what was there."""
        old = map.map.remove_and_get_old(*pair)
        assert old == map.content.get(pair)
        map.drop(pair)
        self.hold(old, map, pair)

    def transform(self, map: ModelledMap, pair: Pair) -> None:
        """Write what a function makes of it."""

        def function(old: Any, argument: Any) -> Any:
            assert old == map.content.get(pair)
            if old is None or not map.mutable:
                return argument
            old.extend(argument)
            return old

        value = map.map.transform(*pair, self.value(map), function)
        map.set(pair, value)
        self.hold(value, map, pair)

    def transform_that_raises(self, map: ModelledMap, pair: Pair) -> None:
        """Fail half-way: nothing may have changed."""

        def function(old: Any, argument: Any) -> Any:
            if isinstance(old, list):
                old.append("half done")
                self.hold(old, map, pair)
            raise KeyError("refused")

        try:
            map.map.transform(*pair, None, function)
        except KeyError:
            return
        raise AssertionError("the function's exception was lost")

    def look(self, map: ModelledMap, pair: Pair) -> None:
        """Read without keeping."""
        assert map.map.contains_key(*pair) == (pair in map.content)
        assert map.map.peek(*pair) == map.content.get(pair)

    def change_held(self, map: ModelledMap, pair: Pair) -> None:
        """Change something that was handed out or in at any time before."""
        if self.held:
            value, map, pair = self.places[id(self.held[self.chance.randrange(len(self.held))])]
            value.append(self.chance.randrange(10))
            del value[:-5]
            if map.lent.get(pair) is value:
                map.content[pair] = list(value)

    def put_held(self, map: ModelledMap, pair: Pair) -> None:
        """Write something that was handed out or in before and is not lent now."""
        if map.mutable and self.held:
            value, last_map, last_pair = self.places[id(self.held[self.chance.randrange(len(self.held))])]
            if last_map.lent.get(last_pair) is not value:
                map.map.put(*pair, value)
                map.set(pair, value)
                self.hold(value, map, pair)

    def value(self, map: ModelledMap) -> Any:
        """A value of the map's kind."""
        number = self.chance.randrange(10)
        return [number] * (number % 3) if map.mutable else number

    def hold(self, value: Any, map: ModelledMap, pair: Pair) -> None:
        """Keep a list that was handed out or in, in the place of another."""
        if isinstance(value, list):
            if id(value) not in self.places:
                if len(self.held) < HELD:
                    self.held.append(value)
                else:
                    position = self.chance.randrange(HELD)
                    del self.places[id(self.held[position])]
                    self.held[position] = value
            self.places[id(value)] = (value, map, pair)

    # -- points in time --------------------------------------------------------------------------------------

    def add_map(self) -> None:
        """One more map in the registry."""
        chance = self.chance
        nested = self.nested and chance.random() < 0.5
        self.maps.append(make_map(nested, chance.random() < 0.6, self.registry, chance.choice((4, 16, 1024))))

    def overlap(self) -> None:
        """Something about the snapshots that overlap transactions, or a new map."""
        choice = self.chance.random()
        if choice < 0.05 and len(self.maps) < 3:
            self.add_map()
        elif choice < 0.45 or not self.extra:
            if len(self.extra) < 5:
                self.extra.append(self.take_snapshot())
        elif choice < 0.55:
            self.roll_back(self.chance.choice(self.extra))
        elif choice < 0.65:
            self.check(self.chance.choice(self.extra))
        else:
            snapshot = self.extra.pop(self.chance.randrange(len(self.extra)))
            self.check(snapshot)
            self.release(snapshot)

    def take_snapshot(self) -> ModelledSnapshot:
        """Take a snapshot; whatever is lent is sealed."""
        self.counts.snapshots += 1
        self.counts.rehashing_snapshots += any(map.map.statistics().is_rehashing for map in self.maps)
        snapshot = ModelledSnapshot(self.registry.snapshot(), self.maps)
        self.sealed()
        return snapshot

    def check(self, snapshot: ModelledSnapshot) -> None:
        """Read a snapshot in full and list the changes since, for every map."""
        for number, map in enumerate(self.maps):
            snapshot.check(number, map)
            map.check_changes(snapshot.point, snapshot.content(number))
        self.sealed()

    def roll_back(self, snapshot: ModelledSnapshot) -> None:
        """Go back to a snapshot, or forward to one."""
        self.counts.rollbacks += 1
        self.registry.roll_back(snapshot.point)
        for number, map in enumerate(self.maps):
            map.restore(snapshot.content(number))

    def release(self, snapshot: ModelledSnapshot) -> None:
        """Release a snapshot, here or on another thread."""
        if self.chance.random() < 0.8:
            snapshot.point.release()
        else:
            thread = threading.Thread(target=snapshot.point.release)
            thread.start()
            thread.join()

    def commit(self, start: ModelledSnapshot, committed: list[dict[Pair, Any]]) -> list[dict[Pair, Any]]:
        """List the changes since the transaction's start, as a commit does, and compare."""
        self.counts.commits += 1
        for number, map in enumerate(self.maps):
            map.check_changes(start.point, start.content(number))
        self.sealed()
        return [map.frozen() for map in self.maps]

    def sealed(self) -> None:
        """Whatever is held reaches nothing from here on."""
        for map in self.maps:
            map.lent.clear()

    def check_invariants(self) -> None:
        """Look at every claim that the maps make about themselves."""
        self.counts.invariant_checks += 1
        for map in self.maps:
            map.map.check_invariants()
            assert len(map.map) == len(map.content)


def stress(operations: int, seed: int) -> Counts:
    """Run phases until so many operations are done; the last one is cut short."""
    chance = random.Random(seed)
    counts = Counts()
    number = 0
    while counts.operations < operations:
        scale = PHASES[number % len(PHASES)]
        Phase(chance, scale, counts).run(min(scale.operations, operations - counts.operations))
        number += 1
    return counts


def main(arguments: list[str]) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, printed")
    parser.add_argument("--record", action="store_true", help=f"write the result to {RESULT.name}")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    started = time.perf_counter()
    ok = False
    counts = Counts()
    try:
        counts = stress(options.operations, seed)
        ok = True
    finally:
        result = {
            "name": "state-map-stress",
            "commit": commit(),
            "seed": seed,
            **dataclasses.asdict(counts),
            "seconds": round(time.perf_counter() - started, 1),
            "ok": ok,
        }
        sys.stdout.write(json.dumps(result) + "\n")
        if options.record:
            RESULT.parent.mkdir(parents=True, exist_ok=True)
            RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


def commit() -> str:
    """The commit that is being tested."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
