"""A state map as a plain dict, with what a caller holds of it: what the real ones are compared with.

The rules that the model says in the simplest way there is:

* content is a dict (key, namespace) → value;
* a caller who changes a value that was handed out by `get` or `transform`, or in by `put`, changes the
  content, until the registry seals (a snapshot, a list of changes), the pair gets another value, goes, or is
  rolled back;
* whatever else a caller holds reaches nothing.
"""

from __future__ import annotations

from typing import Any

from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind, ValueKind
from emberstate.state.changes import ABSENT, apply_ops

Pair = tuple[Any, Any]
Content = dict[Pair, Any]

MUTABLE = MutableKind(list.copy, list.__eq__)


class ModelledMap:
    """A state map under test beside its model; `lent` has the objects by which a caller reaches values."""

    def __init__(self, map: StateMap, kind: ValueKind) -> None:
        self.map = map
        self.mutable = not kind.immutable
        self.content: Content = {}
        self.lent: dict[Pair, Any] = {}

    def set(self, pair: Pair, value: Any) -> None:
        """The pair's value becomes `value`, which its holder may go on changing."""
        self.content[pair] = self.copy(value)
        if self.mutable:
            self.lent[pair] = value

    def drop(self, pair: Pair) -> None:
        """The pair is gone."""
        self.content.pop(pair, None)
        self.lent.pop(pair, None)

    def changed_by_holder(self, held: Any) -> None:
        """Someone changed `held`: content follows where `held` is lent."""
        for pair, lent in self.lent.items():
            if lent is held:
                self.content[pair] = list(held)

    def frozen(self) -> Content:
        """The content as it is now, for good."""
        return {pair: self.copy(value) for pair, value in self.content.items()}

    def restore(self, content: Content) -> None:
        """Go back to `content`."""
        self.content = {pair: self.copy(value) for pair, value in content.items()}
        self.lent.clear()

    def copy(self, value: Any) -> Any:
        """A value that shares nothing with `value`."""
        return list(value) if self.mutable else value

    def check_live(self) -> None:
        """The map holds what the model holds, by iteration, which has no side effects."""
        found = list(self.map)
        assert {(key, namespace): state for key, namespace, state in found} == self.content
        assert len(found) == len(self.map) == len(self.content)

    def check_changes(self, point: SnapshotPoint, before: Content) -> None:
        """`changes` lists exactly the pairs that differ, and makes the new content of the old one."""
        listed = self.map.changes(point)
        by_pair = {(key, namespace): steps for key, namespace, steps in listed}
        assert len(by_pair) == len(listed), "a pair is listed twice"
        differing = {
            pair
            for pair in {*before, *self.content}
            if (pair in before) != (pair in self.content) or before[pair] != self.content[pair]
        }
        assert set(by_pair) == differing
        for pair, steps in by_pair.items():
            assert apply_ops(before.get(pair, ABSENT), steps) == self.content.get(pair, ABSENT)


class ModelledSnapshot:
    """A snapshot of a registry beside what its maps held; maps made later are not in `contents`."""

    def __init__(self, point: SnapshotPoint, maps: list[ModelledMap]) -> None:
        self.point = point
        self.contents = [map.frozen() for map in maps]

    def content(self, number: int) -> Content:
        """What map `number` held; nothing, if it was made later."""
        return self.contents[number] if number < len(self.contents) else {}

    def check(self, number: int, map: ModelledMap) -> None:
        """Every way of reading it gives what was there."""
        seen = map.map.open(self.point)
        expected = self.content(number)
        found = list(seen)
        assert {(key, namespace): state for key, namespace, state in found} == expected
        assert len(found) == len(seen) == len(expected)
        for pair in {*expected, *map.content}:
            assert (pair in seen) == (pair in expected)
            assert seen.get(*pair) == expected.get(pair)


def make_map(nested: bool, mutable: bool, registry: SnapshotRegistry, capacity: int = 4) -> ModelledMap:
    """A map of either class and kind, small enough to grow soon."""
    kind = MUTABLE if mutable else IMMUTABLE
    if nested:
        return ModelledMap(NestedStateMap(kind, registry), kind)
    return ModelledMap(CopyOnWriteStateMap(kind, registry, capacity), kind)
