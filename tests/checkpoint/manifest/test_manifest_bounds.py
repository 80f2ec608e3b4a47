"""Many commits: manifests and chains stay small, and what is written again follows what is written.

The slots here are models: they acknowledge deltas of given sizes and fulfil orders some batches later, so that
thousands of real commits take seconds.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import msgspec
import pytest

from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask, WrittenState
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, Rewrite, RewriteOrder
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import new_id
from emberstate.checkpoint.manifest.model import FileRef, StateFile
from emberstate.checkpoint.restore.operators import OperatorSpec
from tests.checkpoint.counting import KEYS, counting_job, expected_after
from tests.checkpoint.manifest.manifest_forgery import SUM
from tests.checkpoint.stored import SharedMemory

MIB = 2**20


class ModelSlot:
    """A slot that only says what a real one would."""

    def __init__(self, delta_bytes: int, state_bytes: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.delta_bytes, self.state_bytes = delta_bytes, state_bytes
        self.order: RewriteOrder | None = None
        self.left = 0
        self.merged = self.bases = self.written = self.rewritten = 0

    def run(self, task: SlotTask) -> Acknowledgement:
        if self.order is None and task.rewrite is not None:
            self.order, self.left = task.rewrite, self.rng.randrange(4)
        rewrite = None
        if self.order is not None:
            rewrite = self._result(task, self.order) if self.left == 0 else None
            self.left -= 1
        rewriting = "" if self.order is None else self.order.id
        if rewrite is not None:
            self.order = None
        size = self.rng.randrange(1, 2 * self.delta_bytes)
        self.written += size
        place = FileRef(f"state/000001/{new_id()}.arrow", size, SUM)
        return Acknowledgement(
            operator=task.operator,
            slot=task.slot,
            number=task.number,
            attempt=new_id(),
            started_from=task.chain.attempt,
            state=WrittenState(new_id(), "delta", task.chain.groups, SUM, None, place),
            rewrite=rewrite,
            rewriting=rewriting,
        )

    def _result(self, task: SlotTask, order: RewriteOrder) -> Rewrite:
        size = sum(file.place.size for file in order.merge) if order.merge else self.state_bytes
        self.rewritten += size
        self.merged += bool(order.merge)
        self.bases += not order.merge
        kind: Any = "delta" if order.merge else "base"
        groups = order.merge[0].groups if order.merge else task.chain.groups
        file = StateFile(new_id(), kind, groups, FileRef(f"state/000001/{new_id()}.arrow", size, SUM), SUM, task.number)
        return Rewrite.of(order.id, order.merge or order.chain.files, [file])


@dataclasses.dataclass
class Largest:
    manifest: int = 0
    chain: int = 0


def run(commits: int, slots: list[ModelSlot], parallelism: int) -> tuple[CheckpointCoordinator, Largest]:
    storage = SharedMemory()
    spec = OperatorSpec(name="op", key_schema=KEYS, parallelism=parallelism)
    coordinator = CheckpointCoordinator.open(storage, "job", [spec])
    largest = Largest()
    for batch in range(commits):
        transaction = coordinator.begin(batch, query="q", source=f"offset {batch}")
        assert isinstance(transaction, Transaction)
        manifest = coordinator.commit(
            transaction, [slot.run(task) for slot, task in zip(slots, transaction.tasks, strict=True)]
        )
        largest.manifest = max(largest.manifest, coordinator.statistics().manifest_bytes)
        largest.chain = max(largest.chain, *(len(chain.files) for chain in manifest.operators[0].slots))
        # Retention is not what is tested here; without it the listing of a dict takes all the time.
        kept = {path for path in storage.list() if path.startswith("claims/") or f"/{manifest.number:012}/" in path}
        storage.delete_all([path for path in storage.list() if path not in kept])
    open_manifest(coordinator.latest.to_bytes(), "m")
    return coordinator, largest


def check(commits: int) -> None:
    """Small deltas of a large state, large deltas of a small one, and something in between."""
    slots = [ModelSlot(2_000, 500 * MIB, 1), ModelSlot(MIB, 4 * MIB, 2), ModelSlot(50_000, 20 * MIB, 3)]
    coordinator, largest = run(commits, slots, 3)
    small, heavy, middle = slots
    # A chain begins to be rewritten at 12 deltas, and a rewrite takes up to 4 batches here.
    assert largest.chain <= DEFAULT_POLICY.rewrite_at + 8 <= DEFAULT_POLICY.most_files
    assert largest.manifest <= 1_000 + 3 * largest.chain * 450
    assert small.merged > commits // 10 and small.bases <= 1  # the first, when there was none
    assert heavy.bases > heavy.merged
    assert middle.merged > middle.bases > 0
    # What is written again is a small multiple of what is written, whatever the state's size.
    assert small.rewritten <= 8 * small.written + 500 * MIB
    assert middle.rewritten <= 8 * middle.written + 20 * MIB
    assert heavy.rewritten <= 8 * heavy.written
    found = coordinator.statistics()
    assert (found.commits, found.rejected) == (commits, 0)
    assert found.adopted >= commits // 8


def test_a_thousand_commits_stay_bounded() -> None:
    """Catches: a manifest or chain that grows with every commit; bases for small changes; no base for large ones."""
    check(1_000)


@pytest.mark.long
def test_ten_thousand_commits_stay_bounded() -> None:
    """Catches: the same, where it takes longer to show."""
    check(10_000)


def test_real_slots_stay_bounded() -> None:
    """Catches: a rewrite that the models above make and real slots do not."""
    job = counting_job(parallelism=2)
    longest = largest = 0
    for _ in range(120):
        manifest = job.run(1)
        longest = max(longest, *(len(chain.files) for chain in manifest.operators[0].slots))
        largest = max(largest, len(manifest.to_bytes()))
    assert longest <= DEFAULT_POLICY.most_files
    assert largest <= 1_000 + 2 * DEFAULT_POLICY.most_files * 450
    assert job.coordinator.statistics().adopted >= 5
    assert job.content() == expected_after(120) == job.restored()
    job.close()


def test_a_position_that_grows_is_not_ours() -> None:
    """Catches: history kept in a manifest: but for the source's text, the size does not depend on the past."""
    job = counting_job()
    sizes = []
    for batch in range(3):
        transaction = job.begin(batch, source="x" * 10_000 * (3 - batch))
        manifest = job.coordinator.commit(transaction, job.prepare(transaction, rows=[]))
        assert manifest.batch is not None
        sizes.append(len(manifest.to_bytes()) - len(manifest.batch.source))
    assert max(sizes) - min(sizes) < 20
    assert msgspec.json.decode(manifest.to_bytes().partition(b"\n")[2])["batch"]["source"] == "x" * 10_000
    job.close()
