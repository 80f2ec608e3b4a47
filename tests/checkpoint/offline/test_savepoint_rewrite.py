"""Savepoints rewritten offline: the same state, in other key groups, under other names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.commit.savepoint import write_savepoint
from emberstate.checkpoint.manifest.catalogue import read_savepoint, savepoint_names, verify
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY
from emberstate.checkpoint.offline import rewrite as savepoint_rewrite
from emberstate.checkpoint.offline.rewrite import OperatorRewrite, rewrite_savepoint
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.errors import InvariantError, RestoreRefusedError, StorageExistsError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from tests.checkpoint.driver import Job
from tests.checkpoint.profiles import AUDIT, KEYS, MAX_PARALLELISM, PROFILES, Oracle, profiles_job
from tests.checkpoint.states import states_job
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising

#: One slot that never shortens its chain.
ONE_CHAIN: dict[str, Any] = {"parallelism": 1, "policy": DEFAULT_POLICY}


@pytest.fixture(scope="module")
def saved() -> SharedMemory:
    """A job with every kind of state, after some batches, and a savepoint of it."""
    storage = SharedMemory()
    running = profiles_job(storage, seed=7)
    running.open()
    running.run_until(9)
    running.coordinator.savepoint("original")
    running.close()
    return storage


def content(storage: Storage, name: str, operator: str) -> dict[str, list[Any]]:
    """The rows of all states of an operator."""
    with CheckpointReader.open(storage, savepoint=name) as reader:
        return {
            stored.address: sorted(reader.to_arrow(operator, stored.address).to_pylist(), key=str)
            for stored in reader.states(operator)
        }


@pytest.mark.parametrize("max_parallelism", [None, 1, 5, 6, 48, 1000])
@pytest.mark.parametrize("file_bytes", [savepoint_rewrite.FILE_BYTES, 1])
def test_all_state_is_there(
    saved: SharedMemory, max_parallelism: int | None, file_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: rows lost, doubled or put into a wrong key group; files cut in the wrong place."""
    monkeypatch.setattr(savepoint_rewrite, "FILE_BYTES", file_bytes)
    target = SharedMemory()
    steps: list[int] = []
    result = rewrite_savepoint(
        saved,
        read_savepoint(saved, "original"),
        target,
        "new",
        {PROFILES: OperatorRewrite(max_parallelism=max_parallelism)},
        progress=steps.append,
    )
    assert result == read_savepoint(target, "new")
    assert verify(target, result).problems == ()
    profiles, audit = result.operators
    assert profiles.max_parallelism == (max_parallelism or MAX_PARALLELISM)
    assert audit.max_parallelism == MAX_PARALLELISM
    for operator in (PROFILES, AUDIT):
        assert content(target, "new", operator) == content(saved, "original", operator)
    assert {file.kind for operator in result.operators for slot in operator.slots for file in slot.files} == {"base"}
    assert sum(steps) == 7 * 6 + 6 + 7 * profiles.max_parallelism + 6
    assert target.list("savepoints/new")[1:] and all(path.startswith("savepoints/new/") for path in target.list())


def test_a_job_goes_on_from_it(saved: SharedMemory) -> None:
    """Catches: a result that reads well and cannot be restored, or not at another parallelism."""
    storage = SharedMemory()
    rewrites = {PROFILES: OperatorRewrite(max_parallelism=MAX_PARALLELISM)}
    rewrite_savepoint(saved, read_savepoint(saved, "original"), saved, "compact", rewrites)
    running = profiles_job(storage, seed=7, parallelism=3)
    running.open(savepoint=(saved, "compact"))
    latest = running.coordinator.latest
    assert running.stored(storage, msgspec.structs.replace(latest, batch=latest.saved_batch)) == Oracle(7).content(8)
    running.run_batch(0)
    running.close()


def test_names_and_drops(saved: SharedMemory) -> None:
    """Catches: a dropped state whose rows stay in the files; a rename of the wrong thing."""
    before = content(saved, "original", PROFILES)
    change = OperatorRewrite(
        name="people",
        drop_states=frozenset({"log", "recent"}),
        rename_states={"count": "visits", "timers/event": "timers/later"},
    )
    target = SharedMemory()
    result = rewrite_savepoint(saved, read_savepoint(saved, "original"), target, "new", {PROFILES: change})
    after = content(target, "new", "people")
    names = {"count": "visits", "timers/event": "timers/later"}
    assert after == {names.get(name, name): rows for name, rows in before.items() if name not in ("log", "recent")}
    with CheckpointReader(target, result) as reader:
        for part in reader.parts("people", KeyGroupRange(0, 5)):
            stored = [state.address for state in part.reader.meta.states]
            assert stored == ["best", "last", "seen", "visits", "timers/later"]


@pytest.mark.parametrize(
    ("rewrites", "word", "operator", "state"),
    [
        ({"nobody": OperatorRewrite()}, "no operator", "nobody", None),
        ({PROFILES: OperatorRewrite(name=AUDIT)}, "same name", AUDIT, None),
        ({PROFILES: OperatorRewrite(drop_states=frozenset({"x"}))}, "no state", PROFILES, "x"),
        ({PROFILES: OperatorRewrite(rename_states={"count": "log"})}, "same name", PROFILES, "log"),
        ({PROFILES: OperatorRewrite(rename_states={"count": "timers/x"})}, "timer queue", PROFILES, "count"),
        (
            {PROFILES: OperatorRewrite(drop_states=frozenset({"log"}), rename_states={"log": "x"})},
            "dropped", PROFILES, "log",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    saved: SharedMemory, rewrites: dict[str, OperatorRewrite], word: str, operator: str, state: str | None
) -> None:
    """Catches: mistakes that become a savepoint, or leave files behind."""
    target = SharedMemory()
    with raising(RestoreRefusedError, word, operator=operator, state=state):
        rewrite_savepoint(saved, read_savepoint(saved, "original"), target, "new", rewrites)
    assert target.list() == []


def test_a_name_that_is_taken(saved: SharedMemory) -> None:
    """Catches: a savepoint that is overwritten by its own rewrite."""
    before = {path: saved.read(path) for path in saved.list("savepoints")}
    with pytest.raises(StorageExistsError):
        rewrite_savepoint(saved, read_savepoint(saved, "original"), saved, "original", {})
    assert {path: saved.read(path) for path in saved.list("savepoints")} == before


# -- chains with several types --------------------------------------------------------------------------------


@dataclasses.dataclass
class Old:
    name: str
    amount: int


@dataclasses.dataclass
class New:
    title: str
    amount: int
    note: str = "none"


def run(job: Job, work: Callable[[KeyedStateBackend], None]) -> None:
    """Commit a batch in the only slot."""
    job.feed((KEYS[0], work))


@pytest.mark.parametrize("groups", [16, 40])
def test_values_of_older_types_stay_what_they_are(tmp_path: Path, groups: int) -> None:
    """Catches: old bytes filed under a new type; the order of a list's elements lost; a rename of fields forgotten."""
    storage = LocalStorage(tmp_path)
    olds: list[StateDescriptor] = [
        ValueStateDescriptor("value", Old), ListStateDescriptor("list", Old), MapStateDescriptor("map", str, Old)
    ]  # fmt: skip
    keys = [f"key-{number}" for number in range(30)]

    def fill(backend: KeyedStateBackend) -> None:
        value, items, pairs = (backend.get_partitioned_state(state) for state in olds)
        for key in keys:
            backend.set_current_key(key)
            value.update(Old(key, 1))
            items.update([Old(key, 1), Old(key, 2)])
            pairs.put("a", Old(key, 1))
            pairs.put("b", Old(key, 2))

    run(states_job(storage, *olds, **ONE_CHAIN), fill)
    news: list[StateDescriptor] = [
        ValueStateDescriptor("value", New), ListStateDescriptor("list", New), MapStateDescriptor("map", str, New)
    ]  # fmt: skip
    renames = {state: {"name": "title"} for state in ("value", "list", "map")}
    second = states_job(storage, *news, choices=RestoreChoices(rename_fields=renames), **ONE_CHAIN)

    def change(backend: KeyedStateBackend) -> None:
        value, items, pairs = (backend.get_partitioned_state(state) for state in news)
        for key in keys[:10]:
            backend.set_current_key(key)
            value.update(New(key, 7, "new"))
            items.add(New(key, 3, "new"))
            pairs.put("b", New(key, 7, "new"))

    run(second, change)
    second.coordinator.savepoint("original")
    rewrites = {"op": OperatorRewrite(max_parallelism=groups, rename_states={"list": "items"})}
    result = rewrite_savepoint(storage, read_savepoint(storage, "original"), storage, "new", rewrites)
    kinds = [file.kind for slot in result.operators[0].slots for file in slot.files]
    assert kinds == ["base", "delta"]
    news[1] = ListStateDescriptor("items", New)
    third = states_job(SharedMemory(), *news, groups=groups, savepoint=(storage, "new"), **ONE_CHAIN)

    def look(backend: KeyedStateBackend) -> None:
        value, items, pairs = (backend.get_partitioned_state(state) for state in news)
        for key in keys:
            backend.set_current_key(key)
            changed = key in keys[:10]
            assert value.value() == (New(key, 7, "new") if changed else New(key, 1))
            assert items.get() == [New(key, 1), New(key, 2), *([New(key, 3, "new")] if changed else [])]
            assert dict(pairs) == {"a": New(key, 1), "b": New(key, 7, "new") if changed else New(key, 2)}

    run(third, look)


def test_a_failure_leaves_nothing(saved: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a savepoint whose content nobody compared; files of a failed attempt left behind."""
    target = SharedMemory()
    original = savepoint_rewrite._OperatorWriter.store

    def lose(self: Any, layer: int, groups: Any, parts: Any, seal: str) -> Any:
        return _shorter(original(self, layer, groups, parts, seal))

    monkeypatch.setattr(savepoint_rewrite._OperatorWriter, "store", lose)
    with raising(InvariantError, operator=PROFILES):
        rewrite_savepoint(saved, read_savepoint(saved, "original"), target, "new", {})
    assert target.list() == [] and savepoint_names(target) == []
    write_savepoint(saved, read_savepoint(saved, "original"), target, "new")


def _shorter(file: Any) -> Any:
    """A reference that leaves out the last key group of a file."""
    first, last = file.groups
    return msgspec.structs.replace(file, groups=(first, max(first, last - 1)))
