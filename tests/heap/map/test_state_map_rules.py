"""The rules of the state map one by one: growth, chains, copies, iteration, misuse. Numbers are Flink's where
they apply.

What a rule is worth is said in `copy_on_write_buckets`; random programs are in `test_state_map_model`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emberstate.errors import InvariantError, LifecycleError, StateDeclarationError, StateTypeError
from emberstate.heap.map import geometry
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind
from emberstate.state.changes import Op
from tests.heap.model import MUTABLE
from tests.raising import raising

NS = "ns"


class Colliding:
    """A key with the hash of all its like."""

    def __init__(self, name: int) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colliding) and self.name == other.name

    def __repr__(self) -> str:
        return f"Colliding({self.name})"


def filled(entries: int, capacity: int = 16, key: Callable[[int], Any] = int) -> CopyOnWriteStateMap:
    """A map of so many immutable states."""
    states = CopyOnWriteStateMap(IMMUTABLE, None, capacity)
    for number in range(entries):
        states.put(key(number), NS, number)
    return states


def chain_of(states: CopyOnWriteStateMap, key: Any) -> list[Any]:
    """The keys of a key's bucket, from its head, while nothing is growing."""
    assert not states.is_rehashing
    capacity = states.primary.capacity
    return [entry.key for entry in states.cell(states.pair_hash(key, NS) & (capacity - 1), capacity)]


def rehashing(entries_at_least: int = 100) -> CopyOnWriteStateMap:
    """A map in the middle of growing."""
    states = filled(98 if entries_at_least <= 98 else entries_at_least, 128)
    number = len(states)
    while not states.is_rehashing or not 0 < states.rehash_index < states.primary.capacity:
        states.put(number, NS, number)
        number += 1
    return states


def content(states: Any) -> dict[Any, Any]:
    """A map or snapshot as a dict."""
    found = list(states)
    result = {(key, namespace): state for key, namespace, state in found}
    assert len(result) == len(found)
    return result


# -- growth --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [97, 193, 385, 769, 1537])
def test_growth_starts_when_size_before_the_insert_exceeds_three_quarters(first: int) -> None:
    """Catches: growth one insert early or late, or checked after the insert instead of before it."""
    states = filled(first, 128)
    growths = states.statistics().growths

    assert not states.is_rehashing
    states.put("one more", NS, 0)
    assert states.is_rehashing
    assert states.statistics().growths == growths + 1


def test_growth_is_finished_where_flink_finishes_it() -> None:
    """Catches: steps that move too little (growth drags on) or a whole table (a stall).

    Growth to 256 buckets starts at insert 98 of 128 and has at most 98 / 4 steps of entries to move.
    """
    states = filled(98, 128)
    steps = 0
    while states.is_rehashing:
        states.contains_key(0, NS)
        steps += 1

    assert 98 / 8 <= steps <= 98 / 4 + 1


def test_the_insert_that_starts_growth_goes_into_the_old_table() -> None:
    """Catches: the triggering entry put where lookup does not expect it yet."""
    states = filled(98, 128)

    assert states.rehash_index == 0
    assert states.peek(97, NS) == 97


def test_a_step_moves_whole_buckets_until_four_entries_have_moved() -> None:
    """Catches: a step that stops inside a chain, does too little, or does not stop."""
    states = rehashing()
    while states.is_rehashing:
        index, primary = states.rehash_index, states.primary
        lengths = [len(states.cell(bucket, primary.capacity)) for bucket in range(primary.capacity)]
        states.contains_key(0, NS)
        stop = states.rehash_index if states.is_rehashing else primary.capacity
        moved = sum(lengths[index:stop])
        if states.is_rehashing:
            assert moved >= geometry.MOVED_PER_STEP or stop - index == geometry.LOOKED_AT_PER_STEP
        assert moved - lengths[stop - 1] < geometry.MOVED_PER_STEP


def test_a_step_looks_at_no_more_than_64_buckets() -> None:
    """Catches: an operation that scans a large, nearly empty table for four entries to move."""
    states = filled(3073 + 1, 4096)
    assert states.is_rehashing
    for key in range(3000):  # removing steps, too: stop before growth is over
        if states.rehash_index > 1000:
            break
        states.remove(key, NS)
    for key in range(3074):
        if not states.is_rehashing:
            break
        before = states.rehash_index
        states.remove(key, NS)
        if states.is_rehashing:
            assert states.rehash_index - before <= geometry.LOOKED_AT_PER_STEP
    states.check_invariants()


@pytest.mark.parametrize(
    "operation", ["get", "peek", "contains_key", "put", "put_and_get_old", "remove", "remove_and_get_old", "transform"]
)
def test_every_keyed_operation_does_a_step(operation: str) -> None:
    """Catches: an operation that lets growth stand still, so that the next begins before it has ended."""
    arguments: dict[str, tuple[Any, ...]] = {
        "put": (0,),
        "put_and_get_old": (0,),
        "transform": (0, lambda old, argument: argument),
    }
    states = rehashing()
    before = states.statistics().rehash_steps
    getattr(states, operation)(5, NS, *arguments.get(operation, ()))

    assert states.statistics().rehash_steps > before


def test_the_map_never_shrinks() -> None:
    """Catches: a capacity that follows removals, which nothing here is ready for."""
    states = filled(1000)
    capacity = states.statistics().capacity
    for key in range(1000):
        states.remove(key, NS)

    assert states.statistics().capacity == capacity
    assert content(states) == {}


@pytest.mark.parametrize(("asked", "given"), [(0, 4), (1, 4), (4, 4), (5, 8), (16, 16), (1000, 1024)])
def test_capacity_is_a_power_of_two_of_four_at_least(asked: int, given: int) -> None:
    """Catches: masks that do not cover the table; defect 1 of Flink (an empty table shared by all)."""
    states = CopyOnWriteStateMap(IMMUTABLE, None, asked)
    states.put(1, NS, 1)

    assert states.statistics().capacity == given
    assert CopyOnWriteStateMap(IMMUTABLE, None, asked).peek(1, NS) is None


@pytest.mark.parametrize("capacity", [-1, 2**30 + 1])
def test_a_capacity_out_of_range_is_refused(capacity: int) -> None:
    """Catches: an array nobody can allocate, found out at the first insert."""
    with pytest.raises(ValueError, match=str(capacity)):
        CopyOnWriteStateMap(IMMUTABLE, None, capacity)


def test_growth_under_a_snapshot_counts_no_entry_twice() -> None:
    """Catches: `size` wrong while entries are in two tables, or the moved buckets read twice."""
    states = filled(50, 4)
    with states.snapshot() as before:
        for key in range(50, 5000):
            states.put(key, NS, key)
            if key % 97 == 0:
                states.check_invariants()
        assert content(before) == {(key, NS): key for key in range(50)}
        assert content(states) == {(key, NS): key for key in range(5000)}


# -- chains and copies ---------------------------------------------------------------------------------------


def test_a_new_entry_is_the_head_of_its_bucket() -> None:
    """Catches: insertion at the tail, which would copy the whole chain under a snapshot."""
    states = filled(5, 16, Colliding)

    assert [key.name for key in chain_of(states, Colliding(0))] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(("name", "copies"), [(4, 1), (3, 2), (2, 3), (1, 4), (0, 5)])
def test_changing_an_entry_copies_the_chain_down_to_it(name: int, copies: int) -> None:
    """Catches: an entry shared with a snapshot changed in place, or more copied than needed."""
    states = filled(5, 16, Colliding)
    with states.snapshot() as before:
        states.put(Colliding(name), NS, "new")

        assert states.statistics().entry_copies == copies
        states.put(Colliding(name), NS, "newer")
        assert states.statistics().entry_copies == copies
        assert sorted(state for _, _, state in before) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("name", "copies"), [(4, 0), (3, 1), (2, 2), (0, 4)])
def test_removing_an_entry_copies_the_chain_down_to_its_predecessor(name: int, copies: int) -> None:
    """Catches: a head copied for nothing, or a predecessor shared with a snapshot changed in place."""
    states = filled(5, 16, Colliding)
    with states.snapshot() as before:
        states.remove(Colliding(name), NS)

        assert states.statistics().entry_copies == copies
        assert sorted(state for _, _, state in before) == [0, 1, 2, 3, 4]
        assert len(content(states)) == 4


def test_reading_immutable_states_copies_nothing() -> None:
    """Catches: copy-on-read where nothing can be changed by the reader."""
    states = filled(40)
    with states.snapshot():
        for key in range(40):
            states.get(key, NS)

        assert states.statistics().entry_copies == states.statistics().state_copies == 0


def test_a_mutable_state_is_copied_once_per_snapshot() -> None:
    """Catches: a state shared with a snapshot handed out, or copied again by every get."""
    states = CopyOnWriteStateMap(MUTABLE)
    states.put("k", NS, [1])
    with states.snapshot() as before:
        first = states.get("k", NS)
        first.append(2)

        assert states.get("k", NS) is first
        assert states.statistics().state_copies == 1
        assert before.get("k", NS) == [1]


def test_releasing_the_newest_snapshot_lowers_what_must_be_copied() -> None:
    """Catches: copying for a snapshot that is gone; and not copying for an older one that is not."""
    states = filled(1)
    with states.snapshot() as older:
        states.put(0, NS, "between")
        states.snapshot().release()
        states.put(0, NS, "after")

        assert states.statistics().entry_copies == 1
        assert older.get(0, NS) == 0


def test_versions_are_counted_once_per_registry() -> None:
    """Catches: a snapshot whose cost follows the number of maps."""
    registry = SnapshotRegistry()
    maps = [CopyOnWriteStateMap(IMMUTABLE, registry) for _ in range(10)]
    with registry.snapshot() as point:
        assert registry.version == 2
        assert point.images == []
        maps[3].put(1, NS, 1)
        assert [image.map for image in point.images] == [maps[3]]


def test_huge_collisions_work() -> None:
    """Catches: a chain that is walked by recursion, when it is read, copied, moved or freed."""
    states = filled(2000, 4, Colliding)
    with states.snapshot() as before:
        for name in range(0, 2000, 100):
            states.put(Colliding(name), NS, -1)
            states.remove(Colliding(name + 1), NS)
        states.check_invariants()

        assert len(content(before)) == 2000
    assert len(content(states)) == 1980


# -- iteration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 5])
def test_reading_while_iterating_over_a_growing_map_neither_hides_nor_repeats(every: int) -> None:
    """Catches: Flink's defect 4 (22 of 100 pairs seen, or 91 repeated, without an error)."""
    states = rehashing()
    expected = content(states)
    seen = []
    for number, (key, namespace, _) in enumerate(states):
        seen.append((key, namespace))
        if number % every == 0:
            states.get(number % 98, NS)

    assert not states.is_rehashing or every == 5
    assert sorted(seen) == sorted(expected)


@pytest.mark.parametrize("kind", [CopyOnWriteStateMap, NestedStateMap])
@pytest.mark.parametrize("change", ["add", "remove", "roll back", "remove the last one"])
def test_adding_or_removing_while_iterating_fails_fast(kind: type[StateMap], change: str) -> None:
    """Catches: an iteration that goes on over a map it no longer describes."""
    states: Any = kind(IMMUTABLE)  # type: ignore[call-arg]
    for key in range(1 if change == "remove the last one" else 20):
        states.put(key, NS, key)
    with states.snapshot() as point:
        states.put(0, NS, "touched")
        for walk in (iter(states), states.keys(NS)):
            next(walk)
            if change == "add":
                states.put(object(), NS, 1)
            elif change == "roll back":
                states.registry.roll_back(point.point)
            else:
                assert states.remove(next(iter(states.keys(NS))), NS)
            with pytest.raises(RuntimeError, match="during iteration"):
                next(walk)
            states.put(0, NS, "touched")


def test_overwriting_while_iterating_is_seen() -> None:
    """Catches: an iteration that shows an entry which a copy has since replaced."""
    states = filled(5, 16, Colliding)
    with states.snapshot():
        seen = []
        for key, _, state in states:
            seen.append((key.name, state))
            states.put(Colliding(0), NS, "new")

    assert seen == [(4, 4), (3, 3), (2, 2), (1, 1), (0, "new")]


@pytest.mark.parametrize("kind", [CopyOnWriteStateMap, NestedStateMap])
def test_a_visitor_looks_at_a_bounded_part_and_may_find_nothing(kind: type[StateMap]) -> None:
    """Catches: a visitor that looks for entries without end, or takes an empty part for the end."""
    states: Any = kind(IMMUTABLE)  # type: ignore[call-arg]
    for key in range(300):
        states.put(key, NS, key)
    for key in range(300):
        if key % 50:
            states.remove(key, NS)
    visitor = states.visitor(max_buckets=8)
    parts = []
    while (part := visitor.next_entries()) is not None:
        parts.append(part)

    assert [] in parts or kind is NestedStateMap
    assert sorted(key for part in parts for key, _, _ in part) == [0, 50, 100, 150, 200, 250]
    assert len(parts) >= 512 / 8 or kind is NestedStateMap
    assert visitor.next_entries() is None
    with raising(StateDeclarationError, option="max_buckets", found=0):
        states.visitor(0)


def test_a_visitor_goes_on_over_a_table_that_a_roll_back_made_smaller() -> None:
    """Catches: entries missed because their cell has no bucket of its own any more, or visited twice."""
    states = filled(10, 16)
    with states.snapshot() as before:
        for key in range(10, 500):
            states.put(key, NS, key)
        visitor = states.visitor(max_buckets=3)
        visited = visitor.next_entries() or []
        states.registry.roll_back(before.point)
        assert states.primary.capacity == 16
        while (part := visitor.next_entries()) is not None:
            visited += part

    assert sorted(key for key, _, _ in visited if key < 10) == list(range(10))


# -- what is handed out, and what is handed in ---------------------------------------------------------------


@pytest.fixture(params=[CopyOnWriteStateMap, NestedStateMap])
def lists(request: pytest.FixtureRequest) -> Any:
    """An empty map of lists, of either class."""
    return request.param(MUTABLE)


def test_a_value_got_without_a_snapshot_reaches_nothing_after_one(lists: Any) -> None:
    """Catches: sealing that puts back the very object which the caller holds, since nobody had to copy it."""
    lists.put("k", NS, [1])
    lists.registry.seal()
    held = lists.get("k", NS)
    with lists.snapshot() as before:
        held.append("leak")

        assert before.get("k", NS) == [1]
        assert lists.peek("k", NS) == [1]


def test_an_old_value_handed_back_reaches_nothing(lists: Any) -> None:
    """Catches: sealing an equal new value as the old object, which `put_and_get_old` has given away."""
    lists.put("k", NS, [1])
    lists.registry.seal()
    old = lists.put_and_get_old("k", NS, [1])
    lists.registry.seal()
    old.append("leak")

    assert lists.peek("k", NS) == [1]


def test_a_value_that_was_left_or_made_as_it_was_is_no_change(lists: Any) -> None:
    """Catches: a commit that writes whatever was looked at."""
    for key in ("read", "changed back", "changed back later", "put again", "removed and put again"):
        lists.put(key, NS, [1])
    with lists.snapshot() as before:
        lists.get("read", NS)
        held = lists.get("changed back", NS)
        held.append(2)
        held.pop()
        lists.get("changed back later", NS).append(2)
        assert [key for key, _, _ in lists.changes(before.point)] == ["changed back later"]
        lists.get("changed back later", NS).pop()
        lists.put("put again", NS, [1])
        lists.remove("removed and put again", NS)
        lists.put("removed and put again", NS, [1])

        assert lists.changes(before.point) == []


def test_a_value_changed_without_a_put_is_a_change(lists: Any) -> None:
    """Catches: a commit that misses what the user did to a value in place."""
    lists.put("k", NS, [1])
    with lists.snapshot() as before:
        lists.get("k", NS).append(2)

        assert lists.changes(before.point) == [("k", NS, ((Op.REPLACED, [1, 2]),))]


def test_loans_of_removed_entries_are_forgotten() -> None:
    """Catches: a map without snapshots that remembers every entry it ever had."""
    states = CopyOnWriteStateMap(MUTABLE)
    for number in range(20_000):
        states.put(number, NS, [number])
        states.remove(number, NS)
    states.check_invariants()

    assert len(states.loans) < 5_000
    assert len(states.registry.lenders) == 1


def test_a_long_snapshot_does_not_collect_the_logs_of_short_ones() -> None:
    """Catches: memory that follows the number of commits while one base is being written."""
    states = filled(100)
    with states.snapshot() as long:
        for number in range(1_000):
            with states.snapshot():
                for key in range(20):
                    states.put(key, NS, (number, key))

        assert len(long.point.images[0].log) < 10_000
        assert {key for key, _, _ in states.changes(long.point)} == set(range(20))


def test_a_copy_that_raises_changes_nothing() -> None:
    """Catches: a half-lent entry, or a half-taken snapshot, after a value that cannot be copied."""
    fail = False

    def copy(value: list[Any]) -> list[Any]:
        if fail:
            raise OSError("no copy")
        return list(value)

    for kind in (CopyOnWriteStateMap, NestedStateMap):
        fail = False
        states: Any = kind(MutableKind(copy, list.__eq__))
        states.put("k", NS, [1])
        fail = True
        with pytest.raises(OSError, match="no copy"):
            states.snapshot()
        assert states.registry.required == 0
        fail = False
        with states.snapshot() as before:
            fail = True
            with pytest.raises(OSError, match="no copy"):
                states.get("k", NS)
            fail = False
            states.check_invariants()
            assert states.changes(before.point) == []
            states.get("k", NS).append(2)
            assert before.get("k", NS) == [1]
        assert states.get("k", NS) == [1, 2]


def test_a_function_that_raises_leaves_no_entry_behind(lists: Any) -> None:
    """Catches: defect 2 of Flink, a phantom entry without a state; and defect 3, half of a change."""

    def half(old: Any, argument: Any) -> Any:
        if old is not None:
            old.append("half")
        raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        lists.transform("k", NS, None, half)
    assert len(lists) == 0
    lists.put("k", NS, [1])
    with pytest.raises(ValueError, match="refused"):
        lists.transform("k", NS, None, half)
    assert lists.get("k", NS) == [1]


# -- misuse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CopyOnWriteStateMap, NestedStateMap])
@pytest.mark.parametrize("operation", ["get", "peek", "contains_key", "remove", "put", "remove_and_get_old"])
def test_none_is_no_key_and_no_namespace(kind: type[StateMap], operation: str) -> None:
    """Catches: None found absent by reads, and refused only by the write that follows."""
    states: Any = kind(IMMUTABLE)  # type: ignore[call-arg]
    arguments = (1,) if operation == "put" else ()
    with raising(StateTypeError, option="key"):
        getattr(states, operation)(None, NS, *arguments)
    with raising(StateTypeError, option="namespace"):
        getattr(states, operation)("k", None, *arguments)
    with pytest.raises(TypeError, match="unhashable"):
        getattr(states, operation)([], NS, *arguments)
    states.put("k", NS, 1)
    with raising(StateTypeError, option="namespace"):
        getattr(states, operation)("k", None, *arguments)

    assert content(states) == {("k", NS): 1}


@pytest.mark.parametrize("kind", [CopyOnWriteStateMap, NestedStateMap])
def test_a_state_may_be_none(kind: type[StateMap]) -> None:
    """Catches: None taken for no entry."""
    states: Any = kind(IMMUTABLE)  # type: ignore[call-arg]
    states.put("k", NS, None)
    with states.snapshot() as before:
        assert ("k", NS) in before
        assert states.contains_key("k", NS)
        assert states.remove("k", NS)
        assert states.changes(before.point) == [("k", NS, ((Op.CLEARED,),))]


def test_geometry_is_the_same_in_c_and_in_python() -> None:
    """Catches: one of the two files edited and the other forgotten."""
    source = Path(geometry.__file__).with_suffix(".pxd").read_text(encoding="utf-8")
    in_c = {name: int(value) for name, value in re.findall(r"^ +([A-Z_]+) = (\d+)$", source, re.MULTILINE)}
    in_python = {name: value for name, value in vars(geometry).items() if name.isupper()}

    assert in_c == in_python
    assert geometry.PAGE_BUCKETS == 1 << geometry.PAGE_SHIFT == geometry.PAGE_MASK + 1


def test_a_broken_map_says_so() -> None:
    """Catches: check_invariants that finds nothing whatever happens."""
    registry = SnapshotRegistry()
    states = CopyOnWriteStateMap(MUTABLE, registry)
    states.put("k", NS, [1])
    registry.lenders.clear()

    with raising(InvariantError, "loans"):
        states.check_invariants()


def test_what_a_released_snapshot_says() -> None:
    """Catches: reading what may have been changed since, without a word."""
    for kind in (CopyOnWriteStateMap, NestedStateMap):
        states: Any = kind(IMMUTABLE)
        states.put("k", NS, 1)
        snapshot = states.snapshot()
        walk = iter(snapshot)
        snapshot.release()
        snapshot.release()
        for read in (
            lambda: snapshot.get("k", NS), lambda: len(snapshot), lambda: ("k", NS) in snapshot,  # noqa: B023
            lambda: next(walk), lambda: states.open(snapshot.point), lambda: states.changes(snapshot.point),  # noqa: B023
            lambda: states.registry.roll_back(snapshot.point),  # noqa: B023
        ):
            with raising(LifecycleError, found="released"):
                read()


def test_a_table_never_shrinks_and_has_at_most_22_bytes_for_an_entry() -> None:
    """Catches: documented memory that is no longer true: buckets given back, or more of them than said."""
    states = CopyOnWriteStateMap(IMMUTABLE)
    for size in range(1, 3_000):
        states.put(size, "ns", size)
        assert states.statistics().capacity * 8 <= 22 * max(size, 16)
    capacity = states.statistics().capacity
    for key in range(1, 3_000):
        states.remove(key, "ns")
    assert (len(states), states.statistics().capacity) == (0, capacity)
