"""Checkpoints of every format version there ever was restore to what they held, and the job goes on from there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Redelivery, Transaction
from emberstate.checkpoint.commit.slot import SlotCheckpoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.errors import RestoreRefusedError
from emberstate.storage.interface import Storage
from tests.checkpoint.files.state_file_world import content_of, make_backend
from tests.checkpoint.golden.make_checkpoints import (
    NOW,
    CardNow,
    evolving_backend,
    evolving_content,
    evolving_spec,
    slot_of,
    update,
)
from tests.checkpoint.golden.make_checkpoints import world_spec as golden_world_spec
from tests.checkpoint.golden.make_state_files import FOLDER, plain_content
from tests.checkpoint.manifest.manifest_forgery import body_of, replace, sealed
from tests.raising import raising

VERSIONS = (1,)


def golden(version: int, tmp_path: Path) -> FsStateBackend:
    """A copy of a golden location."""
    shutil.copytree(FOLDER / f"v{version}-checkpoint", tmp_path / "golden")
    return FsStateBackend(tmp_path / "golden")


def expected(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"v{version}-checkpoint-expected.json").read_text(encoding="utf-8"))
    return found


def opened(storage: Storage, parallelism: int) -> CheckpointCoordinator:
    specs: list[OperatorSpec] = [golden_world_spec(parallelism), evolving_spec()]
    return CheckpointCoordinator.open(storage, "golden", specs)


@pytest.mark.reliability(24)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("parallelism", [1, 3, 5, 16])
def test_golden_checkpoints_restore(version: int, parallelism: int, tmp_path: Path) -> None:
    """Catches: any change to manifests, chains, decisions or codecs that makes an old job's state another."""
    backend = golden(version, tmp_path)
    coordinator = opened(backend.open_storage(), parallelism)
    transaction = coordinator.begin(4, query="golden query", source="x")
    assert isinstance(transaction, Transaction)
    world: dict[Any, Any] = {}
    evolving: list[Any] = []
    slots: list[SlotCheckpoint] = []
    acknowledgements = []
    for task in transaction.tasks:
        slot = slot_of(backend, make_backend if task.operator == "world" else evolving_backend)
        assert slot.start(task) == "restored"
        slot.backend.check_invariants()
        if task.operator == "world":
            world |= content_of(slot.backend)
        else:
            evolving += evolving_content(slot.backend)
            update(slot.backend, NOW, {"flo": [5, CardNow(1)]})
        acknowledgements.append(slot.prepare())
        slots.append(slot)
    want = expected(version)
    assert plain_content(world) == want["world"]
    assert sorted(evolving) == want["evolving"]
    # And it goes on.
    manifest = coordinator.commit(transaction, acknowledgements)
    assert manifest.batch is not None and manifest.batch.id == 4
    assert manifest.batch.watermark == want["batch"]["watermark"]
    again = opened(backend.open_storage(), 2)
    following = again.begin(5, query="golden query", source="y")
    assert isinstance(following, Transaction)
    found = []
    for task in following.tasks:
        if task.operator == "evolving":
            slot = slot_of(backend, evolving_backend)
            slot.start(task)
            found += evolving_content(slot.backend)
            slot.close()
    assert sorted(found) == sorted([*want["evolving"], ["total", "flo", 5], ["card", "flo", {"amount": 1, "limit": 0}]])
    for slot in slots:
        slot.close()


@pytest.mark.reliability(24)
@pytest.mark.parametrize("version", VERSIONS)
def test_golden_checkpoints_are_sound_and_redeliver(version: int, tmp_path: Path) -> None:
    """Catches: outputs, positions or older checkpoints of an old location that are not found any more."""
    backend, want = golden(version, tmp_path), expected(version)
    storage = backend.open_storage()
    numbers = checkpoint_numbers(storage)
    assert numbers[-1] == want["number"] and len(numbers) >= 3
    for number in numbers:
        assert verify(storage, read_checkpoint(storage, number)).problems == ()
    coordinator = opened(storage, 3)
    redelivery = coordinator.begin(3, query="golden query", source=want["batch"]["source"])
    assert isinstance(redelivery, Redelivery)
    found = [read_ref(storage, output.place).decode() for output in redelivery.manifest.outputs]
    assert found == want["outputs"]
    with raising(RestoreRefusedError, batch=3, option="source", found="other"):
        coordinator.begin(3, query="golden query", source="other")


@pytest.mark.reliability(24)
def test_a_location_of_the_future_is_refused(tmp_path: Path) -> None:
    """Catches: a downgrade that reads what it does not understand, or calls it damaged and goes back."""
    storage = golden(1, tmp_path).open_storage()
    newest = checkpoint_numbers(storage)[-1]
    plain = body_of(storage.read(manifest_path(newest)))
    later = {**plain, "library": "7.0"}
    for data, found in ((sealed(later, version=2), 2), (sealed({**later, "requires": ["salt"]}), ("salt",))):
        replace(storage, manifest_path(newest), data)
        specs = [golden_world_spec(1), evolving_spec()]
        with raising(RestoreRefusedError, r"7\.0", path=manifest_path(newest), found=found):
            CheckpointCoordinator.open(storage, "golden", specs)
        with raising(RestoreRefusedError, r"7\.0", path=manifest_path(newest), found=found):
            CheckpointCoordinator.open(storage, "golden", specs, on_corruption="previous")
    assert storage.list("claims") == ["claims/000002"]  # nothing was taken over
    replace(storage, manifest_path(newest), sealed({**plain, "later": {"x": 1}}))
    assert opened(storage, 1).latest.number == newest + 1  # what is optional is passed over
