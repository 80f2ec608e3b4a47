"""Which batch may follow a checkpoint: the next of the same query, or its own again with the same input.

A job without state begins with batch 0. A query that is further on had state which is not here: to start empty would
give wrong results that look right. A caller that wants this names the batch.

Thread safety: pure functions.
"""

from __future__ import annotations

from emberstate.checkpoint.manifest.model import Manifest
from emberstate.errors import Place, RestoreRefusedError


def check_order(latest: Manifest | None, batch: int, query: str, source: str, *, first: int | None, where: str) -> None:
    """Raise if a batch does not follow `latest`, the newest checkpoint at `where`.

    `first` is the batch that a job without state begins with; None if it may be any.

    Raises:
        RestoreRefusedError: it is not the next batch, or has other input than before.
    """
    last = None if latest is None else latest.batch
    if last is None:
        has_state = latest is not None and (latest.saved_batch is not None or any(latest.file_refs()))
        if batch > 0 and not has_state and first not in (None, batch):
            raise _state_gone(batch, query, where)
        return
    if query != last.query:
        raise RestoreRefusedError(
            f"batch {batch} comes from query {query!r:.100}, but the job's state is that of query "
            f"{last.query!r:.100} after its batch {last.id}: batch ids of different queries cannot be compared. "
            f"Restart the query with its former checkpoint location, or start a new job from a savepoint of this one.",
            batch=batch,
            option="query",
            expected=last.query,
            found=query,
        )
    if batch == last.id + 1 or (batch == last.id and source == last.source):
        return
    got = f"source position {source!r:.300}" if batch == last.id else f"batch {batch}"
    expected = f"{last.source!r:.300}" if batch == last.id else f"batch {last.id + 1}, or {last.id} again"
    differs: Place = {"batch": batch, "option": "batch", "expected": last.id + 1, "found": batch}
    if batch == last.id:
        differs |= {"option": "source", "expected": last.source[:300], "found": source[:300]}
    raise RestoreRefusedError(
        f"Spark's checkpoint and this job's state are out of step: expected {expected}, got {got}. Restart the query "
        f"with its former checkpoint location, or start a new job from a savepoint.",
        **differs,
    )


def _state_gone(batch: int, query: str, where: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"there is no state at {where}, but query {query!r:.100} is at batch {batch}: the results of batches 0 to "
        f"{batch - 1} would be lost. Is the location mistyped? Was it deleted, but not the query's own checkpoint? Is "
        f"it a MemoryStateBackend, whose state ends with its process? Use the job's former location; or start from a "
        f"savepoint (from_savepoint); or delete the query's own checkpoint too, to begin with the source's first rows. "
        f"To continue with empty state on purpose, use starting_empty_at(batch={batch}).",
        batch=batch,
        option="starting_empty_at",
    )
