"""Live, stored and retained sizes: each means one thing."""

from __future__ import annotations

from pathlib import Path

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.savepoint import write_savepoint
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.read.sizes import retained_sizes, stored_bytes, written_bytes
from emberstate.storage.local import LocalStorage
from tests.cli.cards import harness, pay


def test_sizes_of_a_rescaled_job(tmp_path: Path) -> None:
    """Catches: a file that two slots share counted twice; retained files that are missed or counted for a savepoint."""
    for parallelism in (1, 2):
        with harness(FsStateBackend(tmp_path), parallelism=parallelism) as running:
            running.process_batch([pay(f"card-{number}", float(number)) for number in range(9)])
    storage = LocalStorage(tmp_path)
    before, opening, after = (read_checkpoint(storage, number) for number in checkpoint_numbers(storage)[-3:])
    assert [one.kind for one in (before, opening, after)] == ["commit", "opening", "commit"]
    slots = opening.operators[0].slots
    assert len(slots) == 2 and slots[0].files[0].place == slots[1].files[0].place
    assert stored_bytes(opening.operators) == stored_bytes(before.operators) == written_bytes(before).delta > 0
    assert written_bytes(opening).delta == written_bytes(opening).base == 0
    assert stored_bytes(after.operators) == stored_bytes(before.operators) + written_bytes(after).delta
    write_savepoint(storage, after, storage, "one")
    (tmp_path / "savepoints" / "half").mkdir()
    (tmp_path / "savepoints" / "half" / "0-0").write_bytes(b"left by an attempt that failed")
    found = retained_sizes(storage)
    on_disk = {path: (tmp_path / path).stat().st_size for path in storage.list()}
    assert found.files == on_disk and found.total == sum(on_disk.values())
    assert sum(folder.bytes for folder in found.folders.values()) == found.total
    saved = sum(size for path, size in on_disk.items() if path.startswith("savepoints/one/"))
    assert found.savepoints == {"one": saved}
    first = found.checkpoints[opening.number]
    assert first.alone == on_disk[manifest_path(opening.number)] < first.retained
