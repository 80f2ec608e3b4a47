"""Makes the golden checkpoints of the present format version; run it once per version and never again.

    python -m tests.checkpoint.golden.make_checkpoints

`v1-checkpoint` is the whole location of a job that was started twice: with states of every kind and timers, a
base, deltas in bundles and in files of their own, another parallelism at the second start, and states that were
renamed and dropped. It must restore forever, to what `v1-checkpoint-expected.json` says. `v1-example` is the
checkpoint that docs/format.md takes apart.
"""

from __future__ import annotations

import dataclasses
import json
import unittest.mock
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.files.bindings import binding_of_state
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.envelope import FORMAT_VERSION
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.clock import ManualClock
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import StateDescriptor, ValueStateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from tests.checkpoint.files.state_file_world import MAX_PARALLELISM, content_of, do, make_backend
from tests.checkpoint.golden.make_state_files import EXAMPLE_SEEN, EXAMPLE_TOTAL, FOLDER, STEPS, plain, plain_content

KEYS = KeySchema.from_python(str)
START = 1_700_000_000_000_000
GROUPS = 4


@dataclasses.dataclass
class Card:
    """At the first start."""

    cents: int
    note: str


@dataclasses.dataclass
class CardNow:
    """At the second start: a field has another name, one is gone, one is new."""

    amount: int
    limit: int = 0


BEFORE: list[StateDescriptor] = [
    ValueStateDescriptor("sum", int),
    ValueStateDescriptor("old", str),
    ValueStateDescriptor("card", Card),
]
NOW: list[StateDescriptor] = [ValueStateDescriptor("total", int), ValueStateDescriptor("card", CardNow)]


def world_spec(parallelism: int) -> OperatorSpec:
    """The operator with states of every kind."""
    return OperatorSpec(name="world", key_schema=KEYS, parallelism=parallelism, max_parallelism=MAX_PARALLELISM)


def evolving_spec() -> OperatorSpec:
    """The other operator, as it is declared at the second start and any later one."""
    return OperatorSpec(
        name="evolving",
        key_schema=KEYS,
        parallelism=2,
        max_parallelism=GROUPS,
        declared=[binding_of_state(descriptor) for descriptor in NOW],
        choices=RestoreChoices(["old"], (), {"sum": "total"}, {"card": {"cents": "amount"}}),
    )


def evolving_backend(groups: KeyGroupRange, states: Sequence[StateDescriptor] = NOW) -> HeapKeyedStateBackend:
    """A backend of the other operator."""
    backend = HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS, key_group_range=groups)
    for descriptor in states:
        backend.get_partitioned_state(descriptor)
    return backend


def update(backend: KeyedStateBackend, states: Sequence[StateDescriptor], rows: dict[str, list[Any]]) -> None:
    """Set the values of keys that the backend owns, in the order of `states`."""
    for key, values in rows.items():
        if backend.context.grouper(key) in backend.context.key_group_range:
            backend.set_current_key(key)
            for descriptor, value in zip(states, values, strict=True):
                backend.get_partitioned_state(descriptor).update(value)


def evolving_content(backend: Any) -> list[Any]:
    """[state, key, value] of everything, as plain data."""
    tables = backend.registered_kv_states.items()
    return sorted([name, key, plain(value)] for name, table in tables for key, _, value in table)


Work = Callable[[KeyedStateBackend, str], None]


def run(
    coordinator: CheckpointCoordinator, slots: list[SlotCheckpoint], batch: int, work: Work, **options: Any
) -> None:
    """Run and commit a batch; rewrites are waited for."""
    transaction = coordinator.begin(batch, query="golden query", source=json.dumps({"offset": batch}), **options)
    assert isinstance(transaction, Transaction)
    acknowledgements = []
    for task, slot in zip(transaction.tasks, slots, strict=True):
        slot.start(task)
        assert slot._writer is not None and slot._writer.wait(60)
        slot.backend.ttl_clock.processing_time = transaction.batch.processing_time
        work(slot.backend, task.operator)
        output = f"{task.operator} {task.slot} batch {batch}".encode()
        acknowledgements.append(slot.prepare([("main", 1, output)], max_event_time=START + batch))
    coordinator.commit(transaction, acknowledgements)


def make_golden(folder: Path) -> dict[str, Any]:
    """The golden job; what it holds in the end."""
    backend, clock = FsStateBackend(folder), ManualClock(START)
    storage = backend.open_storage()
    policy = ChainPolicy(rewrite_at=2, small_bytes=1)
    first = OperatorSpec(name="evolving", key_schema=KEYS, parallelism=2, max_parallelism=GROUPS)
    coordinator = CheckpointCoordinator.open(storage, "golden", [world_spec(2), first], clock=clock, policy=policy)
    slots = [slot_of(backend, make_backend) for _ in range(2)]
    slots += [slot_of(backend, lambda groups: evolving_backend(groups, BEFORE)) for _ in range(2)]
    slots[1]._inline_bytes = 0

    def before(state: KeyedStateBackend, operator: str) -> None:
        if operator == "world":
            for step in STEPS[0]:
                do(state, step)
        else:
            rows = {key: [len(key), key.upper(), Card(100 * len(key), key)] for key in ("ann", "bob", "cyd", "dora")}
            update(state, BEFORE, rows)

    def between(state: KeyedStateBackend, operator: str) -> None:
        if operator == "world":
            for step in STEPS[1]:
                do(state, step)

    run(coordinator, slots, 0, before, watermark=START - 10)
    for batch in (1, 2):
        clock.advance(1_000_000)
        run(coordinator, slots, batch, between, watermark=START)
    for slot in slots:
        slot.close()

    clock.advance(60_000_000)
    specs = [world_spec(3), evolving_spec()]
    coordinator = CheckpointCoordinator.open(storage, "golden", specs, clock=clock, policy=policy)
    slots = [slot_of(backend, make_backend) for _ in range(3)] + [slot_of(backend, evolving_backend) for _ in range(2)]

    def after(state: KeyedStateBackend, operator: str) -> None:
        if operator == "world":
            for step in STEPS[2]:
                do(state, step)
        else:
            update(state, NOW, {"bob": [77, CardNow(5, 6)], "eve": [1, CardNow(9)]})

    run(coordinator, slots, 3, after)
    world: dict[Any, Any] = {}
    evolving: list[Any] = []
    for slot in slots[:3]:
        world |= content_of(slot.backend)
    for slot in slots[3:]:
        evolving += evolving_content(slot.backend)
    found = coordinator.latest
    for slot in slots:
        slot.close()
    return {
        "world": plain_content(world),
        "evolving": sorted(evolving),
        "number": found.number,
        "batch": {"id": 3, "query": "golden query", "source": '{"offset": 3}', "watermark": START},
        "outputs": [f"{output.operator} {output.slot} batch 3" for output in found.outputs],
    }


def slot_of(backend: FsStateBackend, make: Callable[[KeyGroupRange], HeapKeyedStateBackend]) -> SlotCheckpoint:
    """A slot whose state may be of any declaration."""
    return SlotCheckpoint(make, backend.open_slot_storage(), policy=ChainPolicy(rewrite_at=2, small_bytes=1))


def make_example(folder: Path) -> None:
    """The checkpoint that docs/format.md takes apart: two slots, one batch."""
    backend, clock = FsStateBackend(folder), ManualClock(START)
    spec = OperatorSpec(name="repeated-card", key_schema=KEYS, parallelism=2)
    coordinator = CheckpointCoordinator.open(backend.open_storage(), "cards", [spec], clock=clock)

    def make(groups: KeyGroupRange) -> HeapKeyedStateBackend:
        state = HeapKeyedStateBackend(KEYS, key_group_range=groups)
        state.get_partitioned_state(EXAMPLE_SEEN)
        state.get_partitioned_state(EXAMPLE_TOTAL)
        return state

    def work(state: KeyedStateBackend, _: str) -> None:
        for key, shop, amount in (("ann", "cafe", 9.5), ("bob", "shop", 20.0)):
            if state.context.grouper(key) in state.context.key_group_range:
                state.set_current_key(key)
                state.get_partitioned_state(EXAMPLE_SEEN)[shop] = 1
                state.get_partitioned_state(EXAMPLE_TOTAL).update(amount)

    slots = [slot_of(backend, make) for _ in range(2)]
    run(coordinator, slots, 0, work, watermark=START - 10_000_000)


def temporary_files(storage: Storage) -> int:
    """Remove what only a running process needs."""
    return storage.remove_leftovers(lambda _: False)


def main() -> None:
    """Make all golden checkpoints."""
    golden, example = (FOLDER / f"v{FORMAT_VERSION}-{name}" for name in ("checkpoint", "example"))
    assert not golden.exists() and not example.exists(), "golden files are made once"
    with unittest.mock.patch("socket.gethostname", return_value="host-1"):
        expected = make_golden(golden)
        make_example(example)
    for folder in (golden, example):
        temporary_files(FsStateBackend(folder).open_storage())
        (folder / ".tmp").rmdir()
    text = json.dumps(expected, indent=1, ensure_ascii=True, sort_keys=True)
    (FOLDER / f"v{FORMAT_VERSION}-checkpoint-expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
