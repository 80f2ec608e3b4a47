"""The checkpoint that a start resumes from: the newest.

If it is damaged, the start fails by default. A user may choose to resume from the newest sound one instead; the log
says what is lost.

Thread safety: as the storage.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Literal

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.model import Manifest, Output
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    RestoreRefusedError,
    StateDeclarationError,
    StorageNotFoundError,
)
from emberstate.storage.interface import Storage

log = logging.getLogger("emberstate.checkpoint")

OnCorruption = Literal["fail", "previous"]


@dataclasses.dataclass(frozen=True, slots=True)
class Latest:
    """The checkpoint to resume from."""

    manifest: Manifest | None
    #: The largest number of any checkpoint, sound or damaged; 0 if there is none.
    newest_number: int


def find_latest(storage: Storage, job: str, number: int | None = None, on_corruption: OnCorruption = "fail") -> Latest:
    """Return the checkpoint of `number`, or the newest.

    With "previous", a checkpoint counts only after all its files were verified.

    Raises:
        CorruptionError: it is damaged; with "previous", all are.
        RestoreRefusedError: it is another job's.
    """
    if on_corruption not in ("fail", "previous"):
        what = f"on_corruption: expected 'fail' or 'previous', got {on_corruption!r}"
        raise StateDeclarationError(what, option="on_corruption", expected="fail, previous", found=on_corruption)
    numbers = checkpoint_numbers(storage)
    if not numbers:
        if number is not None:
            raise CheckpointCollectedError(
                f"there is no checkpoint {number} in {storage.describe()}, nor any other", checkpoint=number
            )
        return Latest(None, 0)
    if number is not None:
        return Latest(_of_job(read_checkpoint(storage, number), job), numbers[-1])
    if on_corruption == "fail":
        try:
            return Latest(_of_job(read_checkpoint(storage, numbers[-1]), job), numbers[-1])
        except CheckpointCollectedError:
            if checkpoint_numbers(storage)[-1:] <= numbers[-1:]:
                raise
            return find_latest(storage, job, number, on_corruption)  # collected meanwhile; there is a later one
        except CorruptionError as error:
            raise error.reworded(
                f"the newest checkpoint is damaged: {str(error).rstrip('.')}. There are {len(numbers) - 1} older ones. "
                f"To resume from the newest sound one, and lose the batches after it, open with "
                f"on_corruption='previous'; for a pipeline, make a savepoint of an older checkpoint (emberstate "
                f"savepoint create) and start from that."
            ).located(checkpoint=numbers[-1], option="on_corruption") from error
    return Latest(_newest_sound(storage, job, numbers), numbers[-1])


def _newest_sound(storage: Storage, job: str, numbers: list[int]) -> Manifest:
    problems: list[str] = []
    for number in reversed(numbers):
        try:
            manifest = _of_job(read_checkpoint(storage, number), job)
            found = verify(storage, manifest).problems
        except (CorruptionError, CheckpointCollectedError) as error:
            found = (str(error),)
        if not found:
            if problems:
                log.warning(
                    "resuming from %s, the newest sound one; %d newer are damaged, and their batches are lost: %s",
                    manifest.describe(), numbers.index(numbers[-1]) - numbers.index(number), "; ".join(problems),
                )  # fmt: skip
            return manifest
        problems.append(f"checkpoint {number}: {found[0]}")
    raise CorruptionError(
        f"all {len(numbers)} checkpoints in {storage.describe()} are damaged: {'; '.join(problems)}. Start from a "
        f"savepoint, or from a copy of the storage."
    )


def _of_job(manifest: Manifest, job: str) -> Manifest:
    if manifest.job != job:
        raise RestoreRefusedError(
            f"{manifest.describe()} does not belong to job {job!r}. Give every job its own location.",
            checkpoint=manifest.number,
            expected=job,
            found=manifest.job,
        )
    return manifest


def kept_outputs(storage: Storage, found: Latest) -> tuple[Output, ...] | None:
    """Return the outputs of the checkpoint; None if they were deleted, as older versions did once a later batch had
    committed."""
    manifest = found.manifest
    if manifest is None:
        return ()
    if manifest.delivered:
        return None
    if manifest.number < found.newest_number:
        try:
            for path in {output.place.path for output in manifest.outputs}:
                storage.size(path)
        except StorageNotFoundError:
            return None
    return manifest.outputs
