"""`Retention`: keeps the newest checkpoints and deletes everything else, but never a file that is needed.

It keeps the last `retained` commits with the openings among them, the newest checkpoint of any kind, and pinned ones.
It never lists or deletes savepoints, which need nothing outside their own folders.

After each commit (`committed`) it deletes the files that only checkpoints beyond retention needed, from what it has in
memory. At a start and on demand (`collect`) it lists everything, and so finds what crashes and failures have left.

Why a file that is needed is never deleted
1. Only the holder of the newest incarnation collects. A process that was just overtaken may still be deleting; so each
   round lists first and then checks that this process still holds the job. If so, all listed files were written by
   this process or by older holders, because a newer one writes nothing before its claim.
2. A newer holder resumes from a checkpoint that the overtaken one keeps: from the newest; or it looks for marks after
   its claim (`pins.check_not_condemned`), while the overtaken one marks before it checks that it holds the job. Later
   holders collect a marked checkpoint too, whatever they retain.
3. If no kept manifest names a file, a later manifest can name it only if a transaction in flight or an ordered rewrite
   has written it. So between transactions every such file is garbage; while a transaction is in flight (`begun`), files
   of this incarnation stay. Files of rewrites have the order's id in their names; they stay while it is `unfinished`,
   and are never used afterwards. Unnamed files of older incarnations are never used, since their commits are fenced.
4. Order: mark, look for pins, check that this process holds the job, delete manifests, then files. A crash at any
   point leaves complete checkpoints, and unreferenced files.
5. While a kept manifest cannot be read, no file is deleted, since it might name any. This is logged and counted, and
   ends when that checkpoint falls out of retention.
The age of files does not matter.

A failure to delete never fails a commit: it is counted, logged, and repeated later.

Thread safety: the coordinator's thread.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Final

from emberstate.checkpoint.commit.garbage import (
    beyond_retention,
    check_retained,
    garbage,
    past_intents,
    protected_paths,
)
from emberstate.checkpoint.manifest.catalogue import read_checkpoint
from emberstate.checkpoint.manifest.incarnation import check_newest
from emberstate.checkpoint.manifest.layout import (
    CHECKPOINTS,
    CLAIMS,
    CONDEMNED,
    INTENTS,
    OUTPUT,
    STATE,
    condemned_path,
    intent_path,
    manifest_path,
    number_in,
)
from emberstate.checkpoint.manifest.model import Holder, Manifest
from emberstate.checkpoint.manifest.pins import condemn, condemned_numbers, pinned_numbers
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    EmberstateError,
    FencedError,
    InvariantError,
    RestoreRefusedError,
)
from emberstate.storage.interface import Storage

log = logging.getLogger("emberstate.checkpoint")

#: Commits to keep.
DEFAULT_RETAINED: Final = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Collected:
    """The result of a full collection."""

    #: The checkpoints that exist now, and those that exist only because they are pinned.
    kept: tuple[int, ...]
    pinned: tuple[int, ...]
    #: Kept but unreadable: while there are any, no files are deleted.
    unreadable: tuple[int, ...]
    checkpoints_deleted: int
    files_deleted: int


@dataclasses.dataclass(frozen=True, slots=True)
class RetentionStatistics:
    """Counts since the start."""

    kept: int
    checkpoints_deleted: int
    files_deleted: int
    #: Rounds that failed and were logged.
    failures: int
    #: Rounds that deleted no files because a kept manifest cannot be read.
    refusals: int


class Retention:
    """Deletes what is no longer needed; owned by the coordinator.

    >>> from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, OperatorSpec
    >>> from emberstate.storage.memory import MemoryStorage
    >>> from emberstate.keygroups import KeySchema
    >>> storage, counts = MemoryStorage(), OperatorSpec(name="counts", key_schema=KeySchema.from_python(str))
    >>> for start in range(3):
    ...     coordinator = CheckpointCoordinator.open(storage, "clicks", [counts])
    >>> coordinator.retention.collect(frozenset()).kept
    (3,)
    """

    def __init__(self, storage: Storage, holder: Holder, retained: int = DEFAULT_RETAINED) -> None:
        """Collect as `holder`; keep the last `retained` commits."""
        check_retained(retained)
        self._storage = storage
        self._holder = holder
        self._retained = retained
        self._known: dict[int, Manifest | None] = {}
        self._surveyed = False  # whether _known has all checkpoints
        self._worked = False  # whether a batch has begun under this incarnation
        self._in_flight: int | None = None  # the checkpoint that is being made
        self._pinned: set[int] = set()  # beyond retention, but pinned
        self._doomed: set[str] = set()  # files to delete, unless a kept manifest names them
        self._intents: set[str] = set()  # of all batches but the one in flight
        self._marks: set[str] = set()  # our marks of deleted checkpoints
        self._checkpoints = self._files = self._failures = self._refusals = 0

    def opened(self, manifest: Manifest) -> None:
        """Collect at the start; `manifest` is the opening. A failure is logged and repeated later."""
        self._add(manifest)
        self._guarded(lambda: self.collect(frozenset()))

    def begun(self, number: int) -> None:
        """Note a transaction that becomes checkpoint `number`: no manifest names its files yet."""
        self._in_flight = number
        self._worked = True

    def committed(self, manifest: Manifest, unfinished: frozenset[str]) -> None:
        """Delete what is no longer needed after a commit. A failure is logged and repeated later."""
        newest = max(self._known, default=0)
        before = self._known.get(newest)
        if manifest.parent is None or manifest.parent.number != newest:
            self._surveyed = False  # there is one in between, whose commit seemed to fail
        self._add(manifest)
        self._in_flight = None
        if before is not None and manifest.batch is not None:
            self._intents.add(intent_path(manifest.batch.id, before.origin))
        if not self._surveyed:
            self._guarded(lambda: self.collect(unfinished))
            return
        self._guarded(self._drop_oldest)

    def collect(self, unfinished: frozenset[str]) -> Collected:
        """List everything and delete what is not needed.

        `unfinished` are the ids of rewrites that slots may be writing.

        Raises:
            FencedError: another process holds the job, and collects from now on.
            StorageError: something could not be listed, read or deleted; nothing that is needed was deleted.
        """
        storage, checkpoints, files = self._storage, self._checkpoints, self._files
        if not self._worked:
            # No slot works for this incarnation yet: temporary files are of dead writers, or of writers that retry.
            storage.remove_leftovers(lambda writer: False)
        listed = [*storage.list(STATE), *storage.list(OUTPUT)]
        intents, claims, marks = storage.list(INTENTS), storage.list(CLAIMS), storage.list(CONDEMNED)
        listed += (found := storage.list(CHECKPOINTS))
        self._survey(found)
        condemned = {number for number in condemned_numbers(marks) if number in self._known}
        drop = (condemned - {max(self._known)}) | beyond_retention(self._known, self._retained)
        self._delete_checkpoints(self._condemn(drop))
        self._marks.update(path for path in marks if number_in(path) not in self._known)
        over = [path for path in claims if (number_in(path) or 0) < self._holder.incarnation]
        self._intents.update(intents)
        over += past_intents(intents, self._known)
        protected = protected_paths(self._known)
        if protected is not None:
            over += garbage(listed, protected, self._holder.incarnation, unfinished, self._in_flight)
        self._delete_files(over, protected)
        self._surveyed = True
        return Collected(
            kept=tuple(sorted(self._known)),
            pinned=tuple(sorted(self._pinned)),
            unreadable=tuple(sorted(number for number, known in self._known.items() if known is None)),
            checkpoints_deleted=self._checkpoints - checkpoints,
            files_deleted=self._files - files,
        )

    def statistics(self) -> RetentionStatistics:
        """Return the counts so far."""
        return RetentionStatistics(
            len(self._known), self._checkpoints, self._files, self._failures, self._refusals
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a known checkpoint should have been deleted."""
        if self._surveyed and not self._failures:
            left = beyond_retention(self._known, self._retained) - self._pinned
            if left:
                raise InvariantError(f"checkpoints {sorted(left)} are beyond retention and not pinned, but were kept")

    # -- parts ----------------------------------------------------------------------------------------------

    def _drop_oldest(self) -> None:
        """Collect after a commit: from what is in memory, with one listing of the pins."""
        drop = beyond_retention(self._known, self._retained) - self._pinned
        if not drop and not self._doomed:
            return
        self._delete_checkpoints(self._condemn(drop))
        self._delete_files(past_intents(self._intents, self._known), protected_paths(self._known))

    def _add(self, manifest: Manifest) -> None:
        self._known[manifest.number] = manifest

    def _survey(self, listed: Iterable[str]) -> None:
        """Read every checkpoint; manifests never change, so each is read once."""
        numbers = {
            number for path in listed if (number := number_in(path)) is not None and path == manifest_path(number)
        }
        newest = max(self._known, default=0)
        if newest and newest not in numbers:
            check_newest(self._storage, self._holder, "collecting")
            raise CorruptionError(
                f"checkpoint {newest}, which this process wrote, is no longer in {self._storage.describe()}: something "
                f"else deletes files there. Nothing is collected. Restore the files, or start from a savepoint.",
                path=manifest_path(newest),
                checkpoint=newest,
            )
        known: dict[int, Manifest | None] = {}
        for number in sorted(numbers):
            try:
                known[number] = self._known.get(number) or read_checkpoint(self._storage, number)
            except CheckpointCollectedError:
                continue  # by a holder that was just overtaken
            except (CorruptionError, RestoreRefusedError) as error:
                known[number] = None
                log.warning("collecting: checkpoint %d cannot be read: %s", number, error)
        self._known = known

    def _condemn(self, drop: set[int]) -> set[int]:
        """Mark checkpoints and return those that may be deleted: not pinned, and this process still holds the job."""
        marks = {number: condemn(self._storage, number, self._holder) for number in sorted(drop)}
        pinned = pinned_numbers(self._storage) if drop else set()
        kept = drop & pinned
        if drop:
            self._pinned = (self._pinned | kept) & pinned
        try:
            check_newest(self._storage, self._holder, "collecting")
        except FencedError:
            self._storage.delete_all(marks.values())
            raise
        if kept:
            self._storage.delete_all(marks[number] for number in sorted(kept))
        return drop - kept

    def _delete_checkpoints(self, numbers: set[int]) -> None:
        """Delete manifests; their files are doomed, unless other checkpoints need them."""
        if not numbers:
            return
        self._storage.delete_all([manifest_path(number) for number in sorted(numbers)])
        for number in numbers:
            manifest = self._known.pop(number)
            self._checkpoints += 1
            self._marks.add(condemned_path(number, self._holder.incarnation))
            if manifest is None:
                self._surveyed = False  # its files are unknown: the next round lists everything
            else:
                self._doomed.update(ref.path for ref in manifest.file_refs())

    def _delete_files(self, over: Iterable[str], protected: set[str] | None) -> None:
        """Delete what is over, and doomed files that are not protected; none of these if `protected` is None."""
        paths = {*over, *self._marks}
        if protected is None:
            self._refusals += 1
            log.warning("collecting: deleting no state files while a kept checkpoint cannot be read")
        else:
            paths |= self._doomed - protected
        if paths:
            self._storage.delete_all(sorted(paths))
        self._files += len(paths)
        self._marks.clear()
        self._intents -= paths
        if protected is not None:
            self._doomed.clear()

    def _guarded(self, collect: Callable[[], object]) -> None:
        try:
            collect()
        except (EmberstateError, OSError) as error:
            self._failures += 1
            log.warning("collecting failed, and is repeated later: %s", error)
