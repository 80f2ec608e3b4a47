"""Incarnations: which process may commit, without lock files.

Every start of a job claims the next incarnation by a conditional create. The newest claim holds the job; older holders
find out at their next commit. A claim is never deleted while it is the newest, so a process that dies leaves nothing
to clean up.

Thread safety: the functions may be called from any thread.
"""

from __future__ import annotations

from emberstate.checkpoint.manifest.envelope import open_sealed, seal
from emberstate.checkpoint.manifest.layout import CLAIMS, claim_path, new_id, number_in
from emberstate.checkpoint.manifest.model import Holder
from emberstate.checkpoint.manifest.process import this_process
from emberstate.clock import Clock
from emberstate.errors import CorruptionError, FencedError, StorageError, StorageNotFoundError
from emberstate.storage.interface import Storage

_CLAIM = "claim"
_LIMIT = 64 * 1024


def claim(storage: Storage, clock: Clock) -> Holder:
    """Claim the next incarnation; older holders cannot commit from now on."""
    token = new_id()
    process = this_process(clock.now_micros())
    while True:
        number = newest(storage) + 1
        holder = Holder(number, *process, token)
        if storage.create_if_absent(claim_path(number), seal(_CLAIM, holder)):
            return holder


def newest(storage: Storage) -> int:
    """Return the newest incarnation that was claimed; 0 if none was."""
    numbers = ((path, number_in(path) or 0) for path in storage.list(CLAIMS))
    return max((number for path, number in numbers if path == claim_path(number)), default=0)


def check_newest(storage: Storage, holder: Holder, doing: str) -> None:
    """Raise `FencedError`, naming the newer holder, unless `holder` has the newest claim."""
    number = newest(storage)
    if number > holder.incarnation:
        raise fenced(storage, holder, number, doing)


def fenced(storage: Storage, holder: Holder, by: Holder | int, doing: str) -> FencedError:
    """Return the error for a holder that was overtaken."""
    newer = by if isinstance(by, Holder) else _holder(storage, by)
    number = by.incarnation if isinstance(by, Holder) else by
    return FencedError(
        f"{doing}: {newer} has taken over the job in {storage.describe()}. This process is {holder} and may no longer "
        f"commit. Stop it; if the other one was started by mistake, stop that one and start this one again.",
        path=claim_path(number),
        expected=holder.incarnation,
        found=number,
    )


def _holder(storage: Storage, number: int) -> Holder | str:
    try:
        return open_sealed(_CLAIM, storage.read(claim_path(number), limit=_LIMIT), Holder, name=claim_path(number))
    except (StorageNotFoundError, CorruptionError, StorageError):
        return f"incarnation {number} (its claim cannot be read)"  # its existence is all that fencing needs
