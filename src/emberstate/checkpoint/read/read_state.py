"""`read_state` and `read_changes`: the state of a job as tables of Arrow or pandas, without Spark.

Reads change nothing at the location, and the job may run meanwhile. For many reads of one checkpoint open a
`CheckpointReader`, which can also pin it.

Thread safety: any thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from emberstate.checkpoint.read.scan import Location, plan_scan


def read_state(
    location: Location,
    state: str,
    *,
    operator: str | None = None,
    checkpoint: int | None = None,
    savepoint: str | None = None,
    key: Any = None,
    key_groups: Iterable[int] | None = None,
) -> pa.Table:
    """Return a state of a checkpoint, by default the newest, as an Arrow table; `.to_pandas()` converts it to pandas.

    Needs no class of the job and changes nothing at the location. `operator` may be omitted if there is one; timers are
    `timers/…`. The columns are those of `CheckpointReader.to_arrow` and, with a time to live, `expires`; expired rows
    are included until they are cleaned up. The types of datetimes and decimals fit the rows that are read.

    >>> import tempfile
    >>> import emberstate as es
    >>> from emberstate.testing import Harness
    >>> class Count(es.KeyedProcessFunction):
    ...     seen = es.value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    >>> with tempfile.TemporaryDirectory() as location:
    ...     backend = es.FsStateBackend(location)
    ...     with Harness(Count(), schema="card string", key="card", state_backend=backend) as harness:
    ...         harness.process({"card": "ann"}, {"card": "bob"}, {"card": "ann"})
    ...     read_state(location, "seen", key="ann").to_pylist()
    []
    [{'key': 'ann', 'namespace': '', 'value': 2}]
    """
    scan = plan_scan(
        location,
        state,
        operator=operator,
        checkpoint=checkpoint,
        savepoint=savepoint,
        key=key,
        key_groups=key_groups,
    )
    return scan.to_arrow(location)


def read_changes(
    location: Location,
    state: str,
    since: int,
    *,
    operator: str | None = None,
    checkpoint: int | None = None,
    key: Any = None,
    key_groups: Iterable[int] | None = None,
) -> pa.Table:
    """Return the changes of a state from checkpoint `since` to another, by default the newest: see `ChangeFeed`."""
    scan = plan_scan(
        location,
        state,
        operator=operator,
        checkpoint=checkpoint,
        since=since,
        key=key,
        key_groups=key_groups,
    )
    return scan.to_arrow(location)
