"""`Opening`: the checkpoint that a start commits before its first batch: the state it found, for its own slots.

Thread safety: as the storage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from emberstate.checkpoint.commit.savepoint import import_savepoint
from emberstate.checkpoint.commit.starting_point import Latest, OnCorruption, find_latest, kept_outputs
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.manifest.incarnation import check_newest
from emberstate.checkpoint.manifest.invariants import open_manifest
from emberstate.checkpoint.manifest.layout import manifest_path, new_id
from emberstate.checkpoint.manifest.model import Batch, Holder, Manifest, Operator, Parent, requirements
from emberstate.checkpoint.manifest.pins import check_not_condemned
from emberstate.checkpoint.restore.operators import OperatorSpec, opened_operators
from emberstate.clock import Clock
from emberstate.errors import RestoreRefusedError, StateDeclarationError
from emberstate.storage.interface import Storage


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a start asks for: see `CheckpointCoordinator.open`."""

    storage: Storage
    job: str
    operators: Sequence[OperatorSpec]
    clock: Clock
    start_from: int | None
    savepoint: tuple[Storage, str] | None
    on_corruption: OnCorruption
    drop_operators: Sequence[str]

    def __post_init__(self) -> None:
        _check_names(self.job, self.operators)

    def check(self) -> None:
        """Raise if the program cannot resume. Changes nothing, so it does not stop a program that can."""
        found = self._latest()
        if self.savepoint is None:
            self._operators(self.storage, found.manifest, "")
        else:
            self._operators(self.savepoint[0], read_savepoint(*self.savepoint), "")

    def manifest(self, holder: Holder) -> Manifest:
        """Return the manifest of the opening, not created yet. A savepoint's files are copied for it."""
        storage, found = self.storage, self._latest()
        # After finding the latest and before the create: if a newer holder has opened, its claim is seen here, and
        # this process does not take the number that the newer one will commit next.
        check_newest(storage, holder, "opening")
        before = state = found.manifest
        if self.savepoint is not None:
            state = import_savepoint(*self.savepoint, storage, holder, found.newest_number + 1)
        outputs = kept_outputs(storage, found)
        ident = new_id()
        manifest = Manifest(
            job=self.job,
            id=ident,
            number=found.newest_number + 1,
            kind="opening",
            writer=holder,
            created=self.clock.now_micros(),
            origin=self._origin(found, ident),
            parent=None if before is None else Parent(before.number, before.id),
            location=(before.location if before is not None else "") or new_id(),
            batch=None if before is None else before.batch,
            saved_batch=_saved_batch(before, None if self.savepoint is None else state),
            operators=self._operators(storage, state, ident),
            outputs=outputs or (),
            stages=() if before is None else before.stages,
            delivered=outputs is None,
            requires=requirements(outputs or ()),
        )
        open_manifest(manifest.to_bytes(), "the checkpoint to be opened")  # never write what no reader accepts
        if before is not None:
            if before.number < found.newest_number:
                # A holder that was just overtaken may be about to collect it.
                check_not_condemned(storage, before.number)
            storage.ensure_durable(manifest_path(before.number))
        return manifest

    def _latest(self) -> Latest:
        found = find_latest(self.storage, self.job, self.start_from, self.on_corruption)
        if self.savepoint is not None and found.newest_number:
            raise RestoreRefusedError(
                f"the job cannot start from savepoint {self.savepoint[1]!r}: it has checkpoints in "
                f"{self.storage.describe()}, up to {found.newest_number}. To resume from them, omit the savepoint; to "
                f"start from the savepoint, give the job a new location.",
                checkpoint=found.newest_number,
                option="savepoint",
                found=self.savepoint[1],
            )
        return found

    def _operators(self, storage: Storage, state: Manifest | None, token: str) -> tuple[Operator, ...]:
        now = self.clock.now_micros()
        return opened_operators(storage, state, self.operators, token, now, self.drop_operators)

    def _origin(self, found: Latest, ident: str) -> str:
        """Return what the next batch's intent is filed under: after going back on purpose, not the origin of the
        batches that were begun from there before."""
        before = found.manifest
        if before is None:
            return ""
        return before.origin if self.start_from is None or before.number == found.newest_number else ident


def _check_names(job: str, operators: Sequence[OperatorSpec]) -> None:
    """Reject names that a manifest cannot have, and operators of the same name."""
    names = [spec.name for spec in operators]
    for what, name in (("job", job), *(("operator", name) for name in names)):
        if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
            why = f"the name of {what} {name!r:.100} must be printable, of 1 to 200 characters"
            raise StateDeclarationError(why, option=what, found=f"{name!r:.100}")
    if len(set(names)) != len(names) or not names:
        why = f"a job needs operators with different names, got {names}"
        raise StateDeclarationError(why, option="operators", found=tuple(names))


def _saved_batch(before: Manifest | None, savepoint: Manifest | None) -> Batch | None:
    """Return the batch of the savepoint that the job starts, or has started, from."""
    if savepoint is not None:
        return savepoint.times
    return None if before is None else before.saved_batch
