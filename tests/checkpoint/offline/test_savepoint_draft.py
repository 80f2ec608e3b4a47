"""Savepoints that are made from data: any number of writers, bounded memory, nothing twice, all or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.manifest.catalogue import read_savepoint, savepoint_names, verify
from emberstate.checkpoint.manifest.model import StateFile
from emberstate.checkpoint.offline import given_once
from emberstate.checkpoint.offline.draft import (
    BasePartWriter,
    DeltaPartWriter,
    SavepointDraft,
    commit_draft,
    discard_draft,
    drafting,
)
from emberstate.checkpoint.read.read_state import read_state
from emberstate.errors import CorruptionError, StateDeclarationError, StateTypeError, StorageExistsError
from emberstate.keygroups import KeySchema, range_for_slot
from emberstate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.storage.interface import Storage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.effort import examples
from tests.raising import raising

GROUPS = 16
KEYS = KeySchema.from_python(int)
STATES: tuple[StateDescriptor, ...] = (
    ValueStateDescriptor("value", str),
    ListStateDescriptor("list", int),
    MapStateDescriptor("map", str, int),
    ReducingStateDescriptor("max", max, int),
)

Model = dict[int, dict[str, Any]]

contents = st.fixed_dictionaries(
    {},
    optional={
        "value": st.text(max_size=3),
        "list": st.lists(st.integers(0, 9), min_size=1, max_size=4),
        "map": st.dictionaries(st.sampled_from("abc"), st.integers(0, 9), min_size=1),
        "max": st.integers(0, 9),
    },
)
models: st.SearchStrategy[Model] = st.dictionaries(st.integers(0, 200), contents, max_size=40)


def draft(**changes: Any) -> SavepointDraft:
    given: dict[str, Any] = {
        "name": "boot",
        "job": "job",
        "operator": "op",
        "key_schema": KEYS,
        "max_parallelism": GROUPS,
        "states": STATES,
        "written_at": 1_000_000,
    }
    return SavepointDraft(**{**given, **changes})


def group(key: int) -> int:
    return KEYS.key_group(key, GROUPS)


def write_bases(storage: Storage, made: SavepointDraft, model: Model, parts: int, most: int) -> list[StateFile]:
    """The files of as many parts, each with rows in the order of key groups."""
    files = []
    for part in range(parts):
        groups = range_for_slot(GROUPS, parts, part)
        writer = BasePartWriter(storage, made, groups, most)
        for key in sorted(model, key=group):
            if group(key) in groups:
                writer.add(key, model[key])
        files += writer.finish()
    return files


def write_deltas(storage: Storage, made: SavepointDraft, model: Model, parts: int, most: int) -> list[StateFile]:
    """The files of as many writers, each with any rows in any order; maps come user key by user key."""
    rows = [(key, {name: content}) for key, held in model.items() for name, content in held.items() if name != "map"]
    rows += [
        (key, {"map": {user_key: value}})
        for key, held in model.items()
        for user_key, value in held.get("map", {}).items()
    ]
    random.Random(len(model)).shuffle(rows)
    files = []
    for part in range(parts):
        writer = DeltaPartWriter(storage, made, most)
        for key, held in rows[part::parts]:
            writer.add(key, held)
        files += writer.finish()
    return files


WRITERS = pytest.mark.parametrize("write", [write_bases, write_deltas])


def held(storage: Storage) -> Model:
    """What the savepoint holds."""
    found: Model = {}
    for state in STATES:
        table = read_state(storage, state.name, savepoint="boot").to_pylist()
        for row in table:
            one = found.setdefault(row["key"], {})
            if state.kind == "map":
                one.setdefault("map", {})[row["user_key"]] = row["value"]
            elif state.kind == "list":
                one.setdefault("list", []).append(row["value"])
            else:
                one[state.name] = row["value"]
    return found


@WRITERS
@settings(max_examples=examples(40))
@given(model=models, parts=st.integers(1, 5), most=st.integers(1, 8))
def test_any_number_of_writers_and_files_give_what_was_written(write: Any, model: Model, parts: int, most: int) -> None:
    """Catches: a key that is lost or mixed up where files and parts meet; a file that cannot be read."""
    storage, made = MemoryStorage(), draft()
    files = write(storage, made, model, parts, most)
    manifest = commit_draft(storage, made, files)
    assert read_savepoint(storage, "boot") == manifest
    assert verify(storage, manifest).problems == ()
    assert len(storage.list()) == len(files) + 1
    if files:
        assert held(storage) == {key: one for key, one in model.items() if one}


def test_memory_is_bounded_by_the_limit_and_a_key_group() -> None:
    """Catches: a writer that holds all rows until the end."""
    model: Model = {key: {"value": "x"} for key in range(2000)}
    storage, made = MemoryStorage(), draft()
    bases = write_bases(storage, made, model, 1, 300)
    assert 4 <= len(bases) <= 7
    deltas = write_deltas(storage, made, model, 1, 300)
    assert len(deltas) == 7


@pytest.mark.parametrize("name", ["value", "list", "map", "max"])
@pytest.mark.parametrize("at_once", [True, False], ids=["one writer", "two writers"])
@pytest.mark.parametrize("passes", [1, 3])
def test_nothing_is_given_twice(name: str, at_once: bool, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: one of two values that is silently taken, lists that are joined, maps that overwrite each other."""
    storage, made = MemoryStorage(), draft()
    content = {"value": "a", "list": [1, 1, 2], "map": {"a": 1, "b": 2}, "max": 3}[name]
    said = "user key '[ab]'" if name == "map" else ""
    others: Model = {key: {"value": "x", "list": [5, 5], "map": {"a": 1, "b": 2}} for key in range(20, 40)}
    if at_once:
        base = BasePartWriter(storage, made, made.all_groups)
        base.add(7, {name: content})
        with raising(StateTypeError, said, state=name, key=7):
            base.add(7, {name: content})
        delta = DeltaPartWriter(storage, made)
        delta.add(7, {name: content})
        with raising(StateTypeError, said, state=name, key=7):
            delta.add(7, {name: content})
    else:
        monkeypatch.setattr(given_once, "COMPARED_ROWS", 200 // passes)
        files = write_deltas(storage, made, {**others, 7: {name: content}}, 2, 1000)
        again = DeltaPartWriter(storage, made)
        again.add(7, {name: content})
        with raising(StateTypeError, said, state=name, key=7):
            commit_draft(storage, made, files + again.finish())
        assert savepoint_names(storage) == []
        commit_draft(storage, made, files)


def test_keys_must_come_in_the_order_of_groups() -> None:
    """Catches: a key that is written to a file of other key groups, where no reader would look for it."""
    storage, made = MemoryStorage(), draft()
    keys = sorted(range(500), key=group)
    assert group(keys[0]) == group(keys[1]) < group(keys[-1])
    writer = BasePartWriter(storage, made, made.all_groups, 1)
    writer.add(keys[0], {"value": "a"})
    writer.add(keys[-1], {"value": "a"})
    with raising(StateDeclarationError, key=keys[1], key_group=group(keys[1])):
        writer.add(keys[1], {"value": "a"})
    with raising(StateDeclarationError, key=keys[-1], key_group=group(keys[-1])):
        BasePartWriter(storage, made, range_for_slot(GROUPS, 2, 0)).add(keys[-1], {"value": "a"})


def test_a_part_that_is_missing_makes_no_savepoint() -> None:
    """Catches: a savepoint without the state of some key groups."""
    storage, made = MemoryStorage(), draft()
    files = write_bases(storage, made, {key: {"value": "x"} for key in range(50)}, 3, 100)
    with raising(CorruptionError, operator="op", option="slots", expected=GROUPS):
        commit_draft(storage, made, files[:2])
    assert savepoint_names(storage) == []


@WRITERS
@pytest.mark.reliability(2)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_every_call_leaves_none_or_all(write: Any, when: str) -> None:
    """Catches: half a savepoint that can be seen; an attempt that stands in the way of the next."""
    model: Model = {key: {"value": "x", "list": [1, 2]} for key in range(30)}
    calls, position, finished = 1, 0, 0
    while position < calls:
        target, plan = MemoryStorage(), FaultPlan({})
        plan.fail(SimulatedKill("dead"), nth=position + 1, when=when)  # type: ignore[arg-type]
        plan.fail(SimulatedKill("dead"), nth=position + 2, forever=True)
        storage, made = FaultyStorage(target, plan), draft()
        try:
            with drafting(storage, made):
                commit_draft(storage, made, write(storage, made, model, 2, 10))
            calls = len(plan.calls)
        except SimulatedKill:
            calls = position + 2
        position += 1
        if savepoint_names(target):
            finished += 1
        else:
            again = draft()
            with drafting(target, again):
                commit_draft(target, again, write(target, again, model, 2, 10))
        assert held(target) == model
        assert len(target.list()) == 1 + len({ref.path for ref in read_savepoint(target, "boot").file_refs()})
    assert 0 < finished < position


def test_a_failure_leaves_nothing() -> None:
    """Catches: files that nobody will ever delete."""
    storage, made = MemoryStorage(), draft()
    with pytest.raises(ZeroDivisionError), drafting(storage, made):
        write_bases(storage, made, {key: {"value": "x"} for key in range(30)}, 2, 5)
        assert storage.list()
        raise ZeroDivisionError
    assert storage.list() == []


def test_a_savepoint_that_was_made_is_not_discarded() -> None:
    """Catches: an abort, after a commit whose success nobody heard of, that deletes the savepoint's files."""
    storage, made = MemoryStorage(), draft()
    model: Model = {1: {"value": "x"}}
    commit_draft(storage, made, write_bases(storage, made, model, 1, 5))
    discard_draft(storage, made)
    assert held(storage) == model
    other = draft()
    write_bases(storage, other, model, 1, 5)
    discard_draft(storage, other)
    assert held(storage) == model
    assert len(storage.list()) == 2


def test_a_name_that_is_taken_is_refused_before_anything_is_written() -> None:
    """Catches: hours of writing for nothing, or a savepoint that is overwritten."""
    storage, made = MemoryStorage(), draft()
    commit_draft(storage, made, write_bases(storage, made, {1: {"value": "x"}}, 1, 5))
    before = storage.list()
    with pytest.raises(StorageExistsError), drafting(storage, draft()):
        raise AssertionError("not reached")
    late = draft()
    files = write_bases(storage, late, {2: {"value": "y"}}, 1, 5)
    with pytest.raises(StorageExistsError):
        commit_draft(storage, late, files)
    assert storage.list() == before


@pytest.mark.parametrize(
    "changes",
    [{"name": "../x"}, {"job": ""}, {"operator": "a\nb"}, {"states": ()}, {"states": (STATES[0], STATES[0])}],
)
def test_what_cannot_be_a_savepoint_is_refused(changes: dict[str, Any]) -> None:
    """Catches: names that lead elsewhere, or that no job could have."""
    with pytest.raises(StateDeclarationError):
        draft(**changes)
