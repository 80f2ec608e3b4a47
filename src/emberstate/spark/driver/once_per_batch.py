"""`once_per_batch`: a job gets a batch of a running query in one call, or is told that it got it already.

A second call with the same number would be taken for the batch come again: its rows would be dropped, and the output
of the first would be delivered in their place. Spark itself never calls twice within a run of a query: it ends the run
when a call fails, and sends the batch again in another. So a second call is a mistake, unless the first one failed and
the caller tries again.

Thread safety: any thread; of two that call at once, one is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from emberstate.errors import LifecycleError
from emberstate.spark.driver.source_position import BY_HAND

_lock = threading.Lock()
#: By job, the run and the number of the last batch that was given to it.
_given: Final[dict[str, tuple[str, int]]] = {}


@contextlib.contextmanager
def once_per_batch(job: str, run: str, batch: int) -> Iterator[None]:
    """Refuse what is inside if the job, which is known by this text, has had the batch in this run.

    A call by hand is not of a run: made again with the same number, it is the batch come again.

    Raises:
        LifecycleError: it has.
    """
    if run == BY_HAND:
        yield
        return
    with _lock:
        if _given.get(job) == (run, batch):
            raise LifecycleError(
                f"{job} was called twice with batch {batch} of one query: the rows of the second call would be lost. "
                f"Give it all rows of a batch in one call, as with first.unionByName(second); or make two pipelines, "
                f"each with a name and a location of its own."
            )
        before = _given.get(job)
        _given[job] = run, batch
    try:
        yield
    except BaseException:
        with _lock:
            if before is None:
                _given.pop(job, None)
            else:
                _given[job] = before
        raise
