"""`once_per_batch`: rejects a second call with the same batch in one run of a query.

A second call would look like the batch sent again: its rows would be dropped, and the output of the first call would be
delivered again. Spark itself never calls twice within a run of a query: it ends the run when a call fails, and sends
the batch again in another run. So a second call is a mistake, unless the first one failed and the caller retries.

Thread safety: any thread; of two calls at once, one is rejected.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Final

from emberstate.errors import LifecycleError
from emberstate.spark.driver.source_position import BY_HAND

_lock = threading.Lock()
#: By job: the run and the number of its last batch.
_given: Final[dict[str, tuple[str, int]]] = {}


@contextlib.contextmanager
def once_per_batch(job: str, run: str, batch: int) -> Iterator[None]:
    """Raise if the job has had this batch in this run; `job` identifies the job.

    A call by hand is of no run: a second call with the same number is the batch sent again.

    Raises:
        LifecycleError: the job has had the batch.
    """
    if run == BY_HAND:
        yield
        return
    with _lock:
        if _given.get(job) == (run, batch):
            raise LifecycleError(
                f"{job} was called twice with batch {batch} of one query: the rows of the second call would be lost. "
                f"Give it all rows of a batch in one call, as with first.unionByName(second); or make two pipelines, "
                f"each with a name and a location of its own.",
                batch=batch,
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
