"""Snapshots of a registry, one rule at a time: what is seen, released, merged and rolled back to.

Random programs are in `test_state_map_model`, other threads in `test_snapshot_threads`.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from emberstate.errors import InvariantError, StateTypeError
from emberstate.heap.map import snapshots
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE, ValueKind
from emberstate.state.changes import Op
from tests.heap.model import MUTABLE
from tests.raising import raising

NS = "ns"


def content(states: Any) -> dict[Any, Any]:
    """A map or snapshot as a dict of its keys."""
    found = list(states)
    result = {key: state for key, _, state in found}
    assert len(result) == len(found) == len(states)
    return result


def release_elsewhere(point: SnapshotPoint) -> None:
    """Release on another thread, which may merge nothing."""
    thread = threading.Thread(target=point.release)
    thread.start()
    thread.join()


@pytest.fixture(params=[CopyOnWriteStateMap, NestedStateMap])
def states(request: pytest.FixtureRequest) -> Any:
    """An empty map of immutable states, of either class."""
    return request.param(IMMUTABLE)


def test_a_snapshot_in_the_middle_of_growth_sees_the_three_regions() -> None:
    """Catches: a region left out or read twice, at any instant of any growth."""
    states = CopyOnWriteStateMap(IMMUTABLE, None, 4)
    model = {}
    middle = 0
    for key in range(1_000):
        states.put(key, NS, key)
        model[key] = key
        with states.snapshot() as snapshot:
            middle += states.is_rehashing and states.rehash_index > 0
            states.put(0, NS, 0)
            assert len(snapshot) == len(model)
            if key % 7 == 0:
                assert content(snapshot) == model
                assert all(snapshot.get(wanted, NS) == wanted for wanted in range(0, key, 13))

    assert middle > 100


def test_a_snapshot_costs_the_same_whatever_the_size() -> None:
    """Catches: a copy of the table, or of anything else that grows with the map, when a snapshot is taken."""
    states = CopyOnWriteStateMap(IMMUTABLE)
    for key in range(20_000):
        states.put(key, NS, key)
    with states.snapshot() as snapshot:
        assert snapshot.point.images == []
        assert states.statistics().before_images == 0
        states.put(1, NS, "one bucket")
        assert states.statistics().before_images == 1
        assert states.statistics().entry_copies <= 8


def test_overlapping_snapshots_each_see_their_own_time(states: Any) -> None:
    """Catches: a before-image saved for the newest snapshot only, or taken from a newer one."""
    snapshots = []
    for number in range(6):
        for key in range(number, 30, 2):
            states.put(key, NS, (number, key))
        snapshots.append((states.snapshot(), content(states)))
    for snapshot, expected in snapshots:
        assert content(snapshot) == expected
    for position in (2, 0, 3, 1, 0, 0):
        snapshot, expected = snapshots.pop(position)
        assert content(snapshot) == expected
        snapshot.release()
        states.put("x", NS, position)
        for other, expected in snapshots:
            assert content(other) == expected
    states.check_invariants()

    assert states.registry.live == []
    assert states.statistics().before_images == 0


def test_a_released_snapshot_frees_what_it_kept(states: Any) -> None:
    """Catches: images or frozen copies that stay when nobody can read them."""
    for key in range(100):
        states.put(key, NS, key)
    older, newer = states.snapshot(), states.snapshot()
    for key in range(50):
        states.put(key, NS, -key)
    release_elsewhere(newer.point)

    assert newer.point.frozen == {}
    assert content(older) == {key: key for key in range(100)}
    older.release()
    states.snapshot().release()
    assert older.point.images == newer.point.images == []
    assert older.point.frozen == {}
    assert states.statistics().before_images == 0


def test_rolling_back_after_a_release_on_another_thread(states: Any) -> None:
    """Catches: maps that go by the version of a snapshot which the roll-back has just merged away."""
    kept, _, other = states.snapshot(), states.snapshot(), states.snapshot()
    release_elsewhere(other.point)
    states.put("k", NS, 1)
    states.registry.roll_back(kept.point)
    states.check_invariants()

    assert content(states) == {}


@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("kind", [IMMUTABLE, MUTABLE], ids=["immutable", "mutable"])
@pytest.mark.parametrize("map_type", [CopyOnWriteStateMap, NestedStateMap])
def test_rolling_back_by_the_map_itself(map_type: Any, kind: ValueKind, others: int) -> None:
    """Catches: a `roll_back` of a map that leaves out what its registry does around it.

    Loans that are sealed later, an epoch that does not change, a sister map that stays where it is.
    """
    chance = random.Random(f"{others}")
    for _ in range(25):
        registry = SnapshotRegistry()
        maps = [map_type(kind, registry) for _ in range(2)]
        live: list[tuple[Any, list[dict[Any, Any]]]] = []

        def step(maps: list[Any] = maps) -> None:
            for states in maps:
                for _ in range(chance.randrange(40)):
                    key = chance.randrange(60)
                    if chance.random() < 0.3:
                        states.remove(key, NS)
                    else:
                        states.put(key, NS, [chance.random()])
                        states.get(key, NS)

        for _ in range(others + 1):
            step()
            live.append((maps[0].snapshot().point, [content(states) for states in maps]))
        for _ in range(12):
            step()
            point, expected = chance.choice(live)
            chance.choice(maps).roll_back(point)
            assert [content(states) for states in maps] == expected
            for snapshot, seen in live:
                assert [content(states.open(snapshot)) for states in maps] == seen
            for states in maps:
                states.check_invariants()
        for snapshot, _ in live:
            snapshot.release()


def test_what_snapshot_gives_is_what_changes_and_roll_back_take(states: Any) -> None:
    """Catches: a map that wants another thing than it gave, and says no more than TypeError."""
    with states.snapshot() as before:
        states.put("k", NS, 1)
        assert states.changes(before) == states.changes(before.point) == [("k", NS, ((Op.REPLACED, 1),))]
        for use in (states.changes, states.roll_back, states.open):
            with raising(StateTypeError, option="snapshot", found="str"):
                use("k")
        states.roll_back(before)
        assert content(states) == {}


def test_a_snapshot_that_came_and_went_repeats_no_change(states: Any) -> None:
    """Catches: an entry that is listed once more, as of a snapshot that was released: what was appended to a list
    meanwhile is restored twice, and a user key that came and went is removed from a map that never had it."""
    states.put("k", NS, 1)
    with states.snapshot() as before:
        states.put("k", NS, 2)
        states.snapshot().release()
        states.put("k", NS, 3)
        assert states.changes(before) == [("k", NS, ((Op.REPLACED, 3),))]


def test_a_pair_is_in_a_map_as_it_is_in_a_snapshot(states: Any) -> None:
    """Catches: `in` that falls back on iteration, where no entry is a pair, and says False."""
    states.put("k", NS, None)
    with states.snapshot() as before:
        states.remove("k", NS)
        states.put("l", NS, 1)
        for where, there in ((states, ("l", NS)), (before, ("k", NS))):
            assert there in where
            assert ("m", NS) not in where
            for wrong in ("k", ("k",), ("k", NS, 1), None):
                with pytest.raises(TypeError, match="pair"):
                    wrong in where  # noqa: B015


def test_a_map_made_later_was_empty_then(states: Any) -> None:
    """Catches: a roll-back, a read or a list of changes that takes a new map's first content for old."""
    registry = states.registry
    with registry.snapshot() as first:
        later = type(states)(IMMUTABLE, registry)
        later.put("k", NS, 1)
        with registry.snapshot() as second:
            later.put("k", NS, 2)
            assert content(later.open(first)) == {}
            assert content(later.open(second)) == {"k": 1}
            assert later.changes(first) == [("k", NS, ((Op.REPLACED, 2),))]
            registry.roll_back(first)
            assert content(later) == {}
            registry.roll_back(second)
            assert content(later) == {"k": 1}
        later.check_invariants()
        registry.roll_back(first)
        assert content(later) == {}
        assert later.changes(first) == []


def test_an_image_handed_to_a_snapshot_older_than_its_map() -> None:
    """Catches: before-images of tables kept for a snapshot that cannot see them."""
    registry = SnapshotRegistry()
    with registry.snapshot() as first:
        later = CopyOnWriteStateMap(IMMUTABLE, registry)
        second = registry.snapshot()
        later.put("k", NS, 1)
        second.release()
        later.check_invariants()
        later.put("l", NS, 1)
        later.check_invariants()

        assert {key for key, _, _ in later.changes(first)} == {"k", "l"}


def test_back_and_forth_and_back(states: Any) -> None:
    """Catches: a roll-back that destroys what a newer live snapshot sees, or is no change to it."""
    for key in range(10):
        states.put(key, NS, "first")
    first, then = states.snapshot(), content(states)
    for key in range(5, 40):
        states.put(key, NS, "second")
    second, now = states.snapshot(), content(states)
    for _ in range(3):
        states.remove(3, NS)
        states.registry.roll_back(first.point)
        assert content(states) == then == content(first)
        assert content(second) == now
        assert states.changes(first.point) == []
        assert {key for key, _, _ in states.changes(second.point)} == set(range(5, 40))
        states.put(7, NS, "side branch")
        states.registry.roll_back(second.point)
        assert content(states) == now == content(second)
        assert states.changes(second.point) == []
        states.check_invariants()


def test_a_roll_back_that_finds_the_growth_begun() -> None:
    """Catches: rehash buckets of a future that is gone, overwritten under a snapshot that still sees them."""
    states = CopyOnWriteStateMap(IMMUTABLE, None, 128)
    for key in range(98):
        states.put(key, NS, key)
    while states.rehash_index < 20:
        states.contains_key(0, NS)
    early, at_early = states.snapshot(), content(states)
    while states.rehash_index < 80:
        states.contains_key(0, NS)
    late, at_late = states.snapshot(), content(states)
    states.registry.roll_back(early.point)
    assert states.rehash_index < 80
    for key in range(0, 98, 2):
        states.put(key, NS, "another future")
    while states.is_rehashing:
        states.contains_key(0, NS)
    states.check_invariants()

    assert content(late) == at_late
    assert content(early) == at_early
    states.registry.roll_back(late.point)
    assert content(states) == at_late


def test_versions_grow_with_snapshots_only_and_end_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a version used twice; versions that wrap around, after which nothing is copied any more."""
    registry = SnapshotRegistry()

    assert registry.version == 1
    with registry.snapshot() as one, registry.snapshot() as other:
        assert (one.version, other.version, registry.required) == (2, 3, 3)
        registry.roll_back(one)
    assert (registry.version, registry.required) == (3, 0)
    monkeypatch.setattr(snapshots, "MAX_VERSION", 3)
    with raising(InvariantError, expected=3, found=3):
        registry.snapshot()
    assert (registry.version, registry.live) == (3, [])


def test_another_registry_s_snapshot_is_refused(states: Any) -> None:
    """Catches: versions of two backends compared with each other."""
    foreign = SnapshotRegistry().snapshot()
    for use in (states.registry.release, states.registry.roll_back, states.changes):
        with pytest.raises(ValueError, match="another registry"):
            use(foreign)
    with pytest.raises(ValueError, match="another registry"):
        states.open(foreign)


def test_a_snapshot_that_a_map_cannot_join_is_not_taken() -> None:
    """Catches: a snapshot with half of its maps, left live by an exception."""
    registry = SnapshotRegistry()

    class Refusing:
        def freeze(self, snapshot: SnapshotPoint) -> None:
            raise MemoryError

    registry.synchronous.append(Refusing())
    with pytest.raises(MemoryError):
        registry.snapshot()
    assert registry.live == []
    assert registry.required == 0
