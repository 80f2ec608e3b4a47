"""Both state maps against a plain dict, by random programs: `hypothesis` finds and shortens what breaks them.

Each test drives up to three maps of one registry, some made after a snapshot, through every operation, with
snapshots that overlap and are read, compared, released and rolled back to in any order, while the caller
changes whatever it was ever handed or handed in. After every step the live content, every live snapshot and
all invariants are looked at. Programs that fail are printed as code; the seed is fixed.
"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, assume, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from emberstate.heap.map.snapshots import SnapshotRegistry
from tests.effort import examples
from tests.heap.conftest import COMPILED
from tests.heap.model import ModelledMap, ModelledSnapshot, Pair, make_map

NAMESPACES = ("a", "b")
MAX_MAPS = 3
MAX_SNAPSHOTS = 4
MAX_HELD = 12

maps = st.integers(0, MAX_MAPS - 1)
chosen = st.integers(0, 1 << 16)
namespaces = st.sampled_from(NAMESPACES)
numbers = st.integers(0, 9)


class Refused(Exception):
    """What a raising function raises."""


class StateMapMachine(RuleBasedStateMachine):
    """The rules; subclasses say which maps and how many keys."""

    nested: ClassVar[tuple[bool, ...]] = (False,)
    mutable: ClassVar[tuple[bool, ...]] = (False, True)
    key_space: ClassVar[int] = 4
    bulk: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.registry = SnapshotRegistry()
        self.maps: list[ModelledMap] = []
        self.snapshots: list[ModelledSnapshot] = []
        self.held: list[Any] = []  # whatever the caller was handed or handed in and can change
        self.walks: list[Walk] = []

    # -- helpers ---------------------------------------------------------------------------------------------

    def map_at(self, number: int) -> ModelledMap:
        return self.maps[number % len(self.maps)]

    def pair(self, map: ModelledMap, choice: int, namespace: str) -> Pair:
        """A pair to work on: mostly one that is there."""
        if map.content and choice % 4:
            return sorted(map.content)[choice // 4 % len(map.content)]
        return choice // 4 % self.key_space, namespace

    def value_for(self, map: ModelledMap, number: int) -> Any:
        """A value of the map's kind; immutable ones are one object per value, so that `is` and `==` agree."""
        if map.mutable:
            return self.hold([number] * (number % 3))
        return None if number == 9 else number

    def hold(self, value: Any) -> Any:
        if isinstance(value, list):
            self.held.append(value)
            del self.held[:-MAX_HELD]
        return value

    def sealed(self) -> None:
        for map in self.maps:
            map.lent.clear()

    # -- maps and their operations ---------------------------------------------------------------------------

    @initialize(data=st.data())
    def first_map(self, data: st.DataObject) -> None:
        self.another_map(data.draw(st.sampled_from(self.nested)), data.draw(st.sampled_from(self.mutable)))

    @precondition(lambda self: 0 < len(self.maps) < MAX_MAPS)
    @rule(data=st.data())
    def later_map(self, data: st.DataObject) -> None:
        self.another_map(data.draw(st.sampled_from(self.nested)), data.draw(st.sampled_from(self.mutable)))

    def another_map(self, nested: bool, mutable: bool) -> None:
        self.maps.append(make_map(nested, mutable, self.registry))

    @rule(number=maps, key=chosen, namespace=namespaces)
    def get(self, number: int, key: int, namespace: str) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        value = map.map.get(*pair)
        assert value == map.content.get(pair)
        if map.mutable and pair in map.content:
            if pair in map.lent:
                assert value is map.lent[pair]
            map.lent[pair] = self.hold(value)

    @rule(number=maps, key=chosen, namespace=namespaces, value=numbers)
    def get_and_change(self, number: int, key: int, namespace: str, value: int) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        assume(map.mutable and pair in map.content)
        held = self.hold(map.map.get(*pair))
        map.lent[pair] = held
        held.append(value)
        for other in self.maps:
            other.changed_by_holder(held)

    @rule(number=maps, key=chosen, namespace=namespaces)
    def peek_and_contains(self, number: int, key: int, namespace: str) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        assert map.map.peek(*pair) == map.content.get(pair)
        assert map.map.contains_key(*pair) == (pair in map.content)

    @rule(number=maps, key=chosen, namespace=namespaces, value=numbers)
    def put(self, number: int, key: int, namespace: str, value: int) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        state = self.value_for(map, value)
        assert map.map.put(*pair, state) is None
        map.set(pair, state)

    @rule(number=maps, key=chosen, namespace=namespaces, which=chosen)
    def put_something_held(self, number: int, key: int, namespace: str, which: int) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        assume(map.mutable and self.held)
        state = self.held[which % len(self.held)]
        map.map.put(*pair, state)
        map.set(pair, state)

    @rule(number=maps, key=chosen, namespace=namespaces, value=numbers)
    def put_and_get_old(self, number: int, key: int, namespace: str, value: int) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        state = self.value_for(map, value)
        assert self.hold(map.map.put_and_get_old(*pair, state)) == map.content.get(pair)
        map.set(pair, state)

    @rule(number=maps, key=chosen, namespace=namespaces)
    def remove(self, number: int, key: int, namespace: str) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        assert map.map.remove(*pair) == (pair in map.content)
        map.drop(pair)

    @rule(number=maps, key=chosen, namespace=namespaces)
    def remove_and_get_old(self, number: int, key: int, namespace: str) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)
        assert self.hold(map.map.remove_and_get_old(*pair)) == map.content.get(pair)
        map.drop(pair)

    @rule(number=maps, key=chosen, namespace=namespaces, argument=numbers)
    def transform(self, number: int, key: int, namespace: str, argument: int) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)

        def function(old: Any, argument: Any) -> Any:
            assert old == map.content.get(pair)
            if not map.mutable:
                return argument
            self.hold(old)
            return [argument] if old is None else (old.append(argument), old)[1]

        result = map.map.transform(*pair, argument, function)
        map.set(pair, self.hold(result))

    @rule(number=maps, key=chosen, namespace=namespaces)
    def transform_that_raises(self, number: int, key: int, namespace: str) -> None:
        map = self.map_at(number)
        pair = self.pair(map, key, namespace)

        def function(old: Any, argument: Any) -> Any:
            if isinstance(old, list):
                self.hold(old).append("half done")
            raise Refused

        with pytest.raises(Refused):
            map.map.transform(*pair, None, function)

    @precondition(lambda self: self.held)
    @rule(which=chosen)
    def change_something_held(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        held.append(len(held))
        for map in self.maps:
            map.changed_by_holder(held)

    @precondition(lambda self: self.held)
    @rule(which=chosen)
    def undo_something_held(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        assume(held)
        held.pop()
        for map in self.maps:
            map.changed_by_holder(held)

    @precondition(lambda self: self.bulk)
    @rule(number=maps, start=chosen, namespace=namespaces, count=st.integers(1, 40))
    def put_many(self, number: int, start: int, namespace: str, count: int) -> None:
        map = self.map_at(number)
        for key in range(start, start + min(count, self.bulk)):
            pair = (key % self.key_space, namespace)
            state = [key % 7] if map.mutable else key % 7
            map.map.put(*pair, state)
            map.set(pair, state)

    @precondition(lambda self: self.bulk)
    @rule(number=maps, start=chosen, namespace=namespaces, count=st.integers(1, 40))
    def remove_many(self, number: int, start: int, namespace: str, count: int) -> None:
        map = self.map_at(number)
        for key in range(start, start + min(count, self.bulk)):
            pair = (key % self.key_space, namespace)
            assert map.map.remove(*pair) == (pair in map.content)
            map.drop(pair)

    # -- iteration -------------------------------------------------------------------------------------------

    @rule(number=maps)
    def iterate_and_change_the_views(self, number: int) -> None:
        for _, _, state in self.map_at(number).map:
            if isinstance(state, list):
                state.append("a view")

    @rule(number=maps, namespace=namespaces)
    def keys_of_a_namespace(self, number: int, namespace: str) -> None:
        map = self.map_at(number)
        expected = sorted(key for key, other in map.content if other == namespace)
        assert sorted(map.map.keys(namespace)) == expected

    @precondition(lambda self: len(self.walks) < 2)
    @rule(number=maps, max_buckets=st.integers(1, 5))
    def start_a_visitor(self, number: int, max_buckets: int) -> None:
        self.walks.append(Walk(self.map_at(number), max_buckets))

    @precondition(lambda self: self.walks)
    @rule(which=chosen, removing=st.booleans(), value=numbers)
    def go_on_with_a_visitor(self, which: int, removing: bool, value: int) -> None:
        walk = self.walks[which % len(self.walks)]
        entries = walk.step()
        if entries is None:
            self.walks.remove(walk)
        elif entries:
            key, namespace, _ = entries[0]
            if removing:
                assert walk.visitor.remove(key, namespace)
                walk.map.drop((key, namespace))
            else:
                state = self.value_for(walk.map, value)
                walk.visitor.update(key, namespace, state)
                walk.map.set((key, namespace), state)

    # -- points in time --------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.snapshots) < MAX_SNAPSHOTS)
    @rule()
    def take_a_snapshot(self) -> None:
        self.snapshots.append(ModelledSnapshot(self.registry.snapshot(), self.maps))
        self.sealed()

    @precondition(lambda self: self.snapshots)
    @rule(which=chosen)
    def read_a_snapshot_and_change_the_views(self, which: int) -> None:
        snapshot = self.snapshots[which % len(self.snapshots)]
        for number, map in enumerate(self.maps):
            for _, _, state in map.map.open(snapshot.point):
                if isinstance(state, list):
                    self.hold(state).append("a view")
            for pair in snapshot.content(number):
                self.hold(map.map.open(snapshot.point).get(*pair))

    @precondition(lambda self: self.snapshots)
    @rule(which=chosen)
    def list_changes(self, which: int) -> None:
        snapshot = self.snapshots[which % len(self.snapshots)]
        for number, map in enumerate(self.maps):
            map.check_changes(snapshot.point, snapshot.content(number))
        self.sealed()

    @precondition(lambda self: self.snapshots)
    @rule(which=chosen)
    def release(self, which: int) -> None:
        self.snapshots.pop(which % len(self.snapshots)).point.release()

    @precondition(lambda self: self.snapshots)
    @rule(which=chosen)
    def release_from_another_thread(self, which: int) -> None:
        thread = threading.Thread(target=self.snapshots.pop(which % len(self.snapshots)).point.release)
        thread.start()
        thread.join()

    @precondition(lambda self: self.snapshots)
    @rule(which=chosen, number=maps, how=st.sampled_from(["registry", "map", "map, by its own view"]))
    def roll_back(self, which: int, number: int, how: str) -> None:
        snapshot = self.snapshots[which % len(self.snapshots)]
        rolled = self.map_at(number).map
        if how == "registry":
            self.registry.roll_back(snapshot.point)
        else:
            rolled.roll_back(snapshot.point if how == "map" else rolled.open(snapshot.point))
        for number, map in enumerate(self.maps):
            map.restore(snapshot.content(number))

    # -- after every step ------------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_it_should_be(self) -> None:
        for walk in self.walks:
            walk.note_presence()
        for number, map in enumerate(self.maps):
            map.map.check_invariants()
            map.check_live()
            for snapshot in self.snapshots:
                snapshot.check(number, map)

    def teardown(self) -> None:
        for snapshot in self.snapshots:
            for number, map in enumerate(self.maps):
                map.check_changes(snapshot.point, snapshot.content(number))
            self.sealed()
        for walk in self.walks:
            while walk.step() is not None:
                pass
        for snapshot in self.snapshots:
            snapshot.point.release()
        assert self.registry.required == 0


class Walk:
    """A visitor under way, with what has been there all the time and what it has visited."""

    def __init__(self, map: ModelledMap, max_buckets: int) -> None:
        self.map = map
        self.visitor = map.map.visitor(max_buckets)
        self.always = set(map.content)
        self.visited: list[Pair] = []

    def note_presence(self) -> None:
        self.always.intersection_update(self.map.content)

    def step(self) -> list[tuple[Any, Any, Any]] | None:
        entries: list[tuple[Any, Any, Any]] | None = self.visitor.next_entries()
        if entries is None:
            assert len(set(self.visited)) == len(self.visited), "a pair was visited twice"
            assert self.always <= set(self.visited), "a pair was there all the time and not visited"
            assert self.visitor.next_entries() is None
            return None
        for key, namespace, state in entries:
            assert self.map.content[key, namespace] == state
            self.visited.append((key, namespace))
        return entries


class FewKeys(StateMapMachine):
    """Copy-on-write maps, few keys: chains, snapshots and loans of the same entries over and over."""


class ManyKeys(StateMapMachine):
    """Copy-on-write maps that grow: snapshots and roll-backs in the middle of a rehash."""

    key_space = 400
    bulk = 40


class Nested(StateMapMachine):
    """Nested maps."""

    nested = (True,)


class Mixed(StateMapMachine):
    """Maps of both classes in one registry."""

    nested = (False, True)
    key_space = 40
    bulk = 20


@pytest.mark.hypothesis
@pytest.mark.parametrize("machine", [FewKeys, ManyKeys, Nested, Mixed])
def test_a_state_map_is_a_dict_with_a_past(machine: type[StateMapMachine]) -> None:
    """Catches: any entry lost, repeated, leaked into or out of a snapshot, or wrongly listed as changed."""
    run_state_machine_as_test(
        seed(20240917)(machine),
        settings=settings(
            max_examples=examples(EXAMPLES[machine] if COMPILED else EXAMPLES[machine] // 2),
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


EXAMPLES = {FewKeys: 200, ManyKeys: 120, Nested: 50, Mixed: 80}
