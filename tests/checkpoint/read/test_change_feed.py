"""The change feed between two checkpoints: exactly the difference of the two as tables."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pyarrow as pa
import pytest

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers
from emberstate.checkpoint.read.change_feed import ChangeFeed
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.errors import RestoreRefusedError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from emberstate.storage.interface import Storage
from tests.checkpoint.driver import Job
from tests.checkpoint.profiles import MAX_PARALLELISM, PROFILES, STATES, TIMERS, profiles_job
from tests.checkpoint.states import put, states_job
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising

KEYS = KeySchema.from_python(str)


def rows(table: pa.Table) -> dict[Any, tuple[Any, Any]]:
    """A state's table, by what tells its rows apart: value and stamp."""
    found = {}
    for row in table.to_pylist():
        value, stamp = row.pop("value", None), row.pop("stamp", None)
        found[tuple(sorted(row.items(), key=str))] = (value, stamp)
    return found


def expected(old: pa.Table, new: pa.Table) -> list[Any]:
    """The difference of two tables."""
    before, after = rows(old), rows(new)
    changes = []
    for ident in before.keys() | after.keys():
        one, other = before.get(ident), after.get(ident)
        if one != other:
            kind = "added" if one is None else "removed" if other is None else "changed"
            changes.append((ident, kind, one or (None, None), other or (None, None)))
    return sorted(changes, key=str)


def found(feed: ChangeFeed, key_groups: list[int] | None = None) -> list[Any]:
    """The feed in the same form; its key groups are right."""
    changes = []
    for row in feed.to_arrow(key_groups).to_pylist():
        group, kind = row.pop("key_group"), row.pop("change")
        old = (row.pop("old", None), row.pop("old_stamp", None))
        new = (row.pop("new", None), row.pop("new_stamp", None))
        assert group == KEYS.key_group(row["key"], feed.operator.max_parallelism)
        changes.append((tuple(sorted(row.items(), key=str)), kind, old, new))
    return sorted(changes, key=str)


@pytest.mark.parametrize("seed", range(2))
def test_the_difference_of_two_tables(seed: int) -> None:
    """Catches: any change that is missing, made up, or put wrongly, for any pair of checkpoints: over rewritten
    chains, another parallelism, both directions; key groups that are passed over though they changed."""
    storage = SharedMemory()
    running = profiles_job(storage, seed=seed)
    running.open()
    running.run_until(6)
    running.close()
    running = profiles_job(storage, seed=seed, parallelism=3)
    running.open()
    running.run_until(9)
    running.close()
    numbers = checkpoint_numbers(storage)
    readers = {number: CheckpointReader.open(storage, number) for number in numbers}
    states = [*(state.name for state in STATES), f"timers/{TIMERS}"]
    last = readers[numbers[-1]]
    assert {stored.address for stored in last.states(PROFILES)} == set(states)
    kinds = set()
    for one, other in [*itertools.pairwise(numbers[1:]), (numbers[-1], numbers[2])]:
        for state in states:
            there = {stored.address for stored in readers[one].states(PROFILES)}
            old = readers[one].to_arrow(PROFILES, state) if state in there else pa.table({})
            new = readers[other].to_arrow(PROFILES, state) if readers[other].states(PROFILES) else pa.table({})
            if state not in there and not readers[other].states(PROFILES):
                continue
            feed = ChangeFeed(readers[one], readers[other], PROFILES, state)
            changes = found(feed)
            assert changes == expected(old, new), (one, other, state)
            kinds |= {change[1] for change in changes}
            if one > other:
                parts = [found(feed, [group]) for group in range(MAX_PARALLELISM)]
                assert sorted(itertools.chain(*parts), key=str) == changes
    assert kinds == {"added", "removed", "changed"}


def given_job(storage: Storage, *states: StateDescriptor, **choices: Any) -> Job:
    """A job with given states and choices about those of an earlier one."""
    return states_job(storage, *states, choices=RestoreChoices(**choices), retained=50)


def feed(storage: Storage, old: int, new: int, state: str) -> list[tuple[Any, ...]]:
    """(key, change, old, new) of a feed."""
    table = ChangeFeed(CheckpointReader.open(storage, old), CheckpointReader.open(storage, new), "op", state).to_arrow()
    return sorted(((row["key"], row["change"], row["old"], row["new"]) for row in table.to_pylist()), key=str)


def test_names_are_followed_and_new_and_dropped_states_are_whole() -> None:
    """Catches: a renamed state shown as all removed, or refused; a state that is new or gone left out."""
    storage = SharedMemory()
    one, two = ValueStateDescriptor("one", int), ValueStateDescriptor("two", int)
    first = given_job(storage, one, two)
    start = first.feed(("ann", put(one, 1)), ("bob", put(one, 2)), ("ann", put(two, 5))).number
    uno, three = ValueStateDescriptor("uno", int), ValueStateDescriptor("three", int)
    second = given_job(storage, uno, three, rename_states={"one": "uno"}, drop_states=["two"])
    end = second.feed(("bob", put(uno, 3)), ("eve", put(three, 7))).number
    assert feed(storage, start, end, "uno") == [("bob", "changed", 2, 3)]
    assert feed(storage, start, end, "two") == [("ann", "removed", 5, None)]
    assert feed(storage, start, end, "three") == [("eve", "added", None, 7)]
    with raising(StateDeclarationError, r"\['three', '.*', 'two', 'uno'\]", operator="op", state="one"):
        feed(storage, start, end, "one")
    old, new = (CheckpointReader.open(storage, number) for number in (start, end))
    with raising(StateDeclarationError, r"\['op'\]", operator="other"):
        ChangeFeed(old, new, "other", "one")
    with raising(StateDeclarationError, operator="op", key_group=16):
        ChangeFeed(old, new, "op", "uno").to_arrow([16])


def test_another_state_under_the_same_name_is_refused() -> None:
    """Catches: elements of a list compared with values."""
    storage = SharedMemory()
    value, other, items = ValueStateDescriptor("x", int), ValueStateDescriptor("y", int), ListStateDescriptor("x", int)
    start = given_job(storage, value).feed(("ann", put(value, 1))).number
    given_job(storage, other, drop_states=["x"]).feed(("ann", put(other, 1)))
    end = given_job(storage, other, items).feed(("ann", put(items, [1]))).number
    with raising(RestoreRefusedError, "value state .* list state", state="x"):
        feed(storage, start, end, "x")


def test_types_that_depend_on_values() -> None:
    """Catches: columns of datetimes typed by the first batch, so that parts do not fit together."""
    storage = SharedMemory()
    seen = ValueStateDescriptor("seen", datetime.datetime)
    running = given_job(storage, seen)
    naive = datetime.datetime(2024, 5, 1, 12)
    start = running.feed(("ann", put(seen, naive))).number
    zoned, later = naive.replace(tzinfo=datetime.UTC), naive.replace(hour=13)
    end = running.feed(("bob", put(seen, zoned)), ("ann", put(seen, later))).number
    assert feed(storage, start, end, "seen") == [
        ("ann", "changed", "2024-05-01T12:00:00", "2024-05-01T13:00:00"),
        ("bob", "added", None, "2024-05-01T12:00:00+00:00"),
    ]


def test_only_what_changed_is_read() -> None:
    """Catches: key groups read in which nothing changed."""
    storage = SharedMemory()
    total = ValueStateDescriptor("total", int)
    running = given_job(storage, total)
    start = running.feed(*[(f"key-{number}", put(total, number)) for number in range(100)]).number
    end = running.feed(("key-7", put(total, 0))).number
    old, new = (CheckpointReader.open(storage, number) for number in (start, end))
    ranges = list(ChangeFeed(old, new, "op", "total")._ranges(None))
    group = KEYS.key_group("key-7", 16)
    assert ranges == [KeyGroupRange(group, group)]
    assert list(ChangeFeed(old, old, "op", "total")._ranges(None)) == []
