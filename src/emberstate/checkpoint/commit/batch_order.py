"""Which batch may follow a checkpoint: the next of the same query, or its own again with the same input.

A job without any state begins with batch 0. A query that is further on had a state, and it is not here: to count from
zero would be wrong and look right. Who wants just that says with which batch.

Thread safety: pure functions.
"""

from __future__ import annotations

from emberstate.checkpoint.manifest.model import Manifest
from emberstate.errors import RestoreRefusedError


def check_order(latest: Manifest | None, batch: int, query: str, source: str, *, first: int | None, where: str) -> None:
    """Refuse a batch that does not follow `latest`, the newest checkpoint at `where`.

    `first` is the batch that a job without any state begins with; None if it may be any.

    Raises:
        RestoreRefusedError: it is not the batch that follows, or comes with other input than before.
    """
    last = None if latest is None else latest.batch
    if last is None:
        has_state = latest is not None and (latest.saved_batch is not None or any(latest.file_refs()))
        if batch > 0 and not has_state and first not in (None, batch):
            raise _state_gone(batch, query, where)
        return
    if query != last.query:
        raise RestoreRefusedError(
            f"batch {batch} comes from query {query!r:.100}, the job's state is that of query {last.query!r:.100} "
            f"after its batch {last.id}: batch ids of different queries cannot be compared. Restart the query with "
            f"the checkpoint location it had; or start a new job from a savepoint of this one."
        )
    if batch == last.id + 1 or (batch == last.id and source == last.source):
        return
    came = f"with source position {source!r:.300}" if batch == last.id else f"as batch {batch}"
    expected = f"{last.source!r:.300}" if batch == last.id else f"batch {last.id + 1}, or {last.id} again"
    raise RestoreRefusedError(
        f"a batch came {came}, expected is {expected}: the query's own checkpoint and the job's state are not of "
        f"one piece. Restart the query with the checkpoint location it had, or start a new job from a savepoint."
    )


def _state_gone(batch: int, query: str, where: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"there is no state at {where}, and query {query!r:.100} is at batch {batch} already: what batches 0 to "
        f"{batch - 1} left would count as nothing. Is the location mistyped? Was it deleted, while the query's own "
        f"checkpoint was not? Is it a MemoryStateBackend, whose state ends with its process? Give the location that "
        f"the job had; or start from a savepoint (from_savepoint); or delete the query's own checkpoint too, to begin "
        f"with its source's first rows. To go on with empty state on purpose, say starting_empty_at(batch={batch})."
    )
