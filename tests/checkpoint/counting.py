"""The work of most checkpoint tests: every row is a key, and is counted.

The job counts the key, appends the batch to a list, and remembers the batch in a map and a timer queue.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from emberstate.checkpoint.backends import FsStateBackend, StateBackend
from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.storage.interface import Storage
from tests.checkpoint.driver import SHORT_CHAINS, Job
from tests.checkpoint.work import Content, Output, Work

OPERATOR = "counts"
COUNT = ValueStateDescriptor("count", int, default=0)
LOG = ListStateDescriptor("log", int)
SEEN = MapStateDescriptor("seen", str, int)


class Counting(Work):
    """Key → how often, in which batches, the last batch of each kind, and timers at the batches."""

    name = OPERATOR

    def __init__(self, groups: int = Work.groups) -> None:
        self.groups = groups

    def declare(self, backend: KeyedStateBackend) -> None:
        for descriptor in (COUNT, LOG, SEEN):
            backend.get_partitioned_state(descriptor)
        backend.get_timer_queue("event")

    def apply(self, backend: KeyedStateBackend, batch: int, rows: Sequence[str]) -> None:
        """Run those of a batch's rows that the backend owns."""
        count, log, seen = (backend.get_partitioned_state(descriptor) for descriptor in (COUNT, LOG, SEEN))
        timers = backend.get_timer_queue("event")
        for row in rows:
            if self.owns(backend, row):
                backend.set_current_key(row)
                count.update(count.value() + 1)
                log.add(batch)
                seen[f"b{batch % 5}"] = batch
                timers.register(batch, "t")

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[str]) -> list[Output]:
        self.apply(backend, task.batch.id, rows)
        return [("main", 1, f"slot {task.slot} batch {task.batch.id}".encode())]

    def content(self, backend: Any) -> Content:
        tables = {name: dict[str, Any]() for name in ("count", "log", "seen")}
        for name, found in tables.items():
            for key, _, value in backend.registered_kv_states[name]:
                found[key] = copy.deepcopy(value)
        timers = {key: sorted(time for time, _, _ in found) for key, _, found in backend.get_timer_queue("event").table}
        return {
            key: (tables["count"][key], list(tables["log"][key]), dict(tables["seen"][key]), timers[key])
            for key in tables["count"]
        }

    def rows(self, batch: int) -> list[str]:
        return [f"k{(batch * 7 + i * i) % 23}" for i in range(6)]

    def after(self, model: Content, batch: int, rows: Sequence[str]) -> Content:
        model = dict(model)
        for row in rows:
            count, log, seen, times = model.get(row, (0, [], {}, []))
            model[row] = (count + 1, [*log, batch], {**seen, f"b{batch % 5}": batch}, sorted({*times, batch}))
        return model


COUNTING = Counting()
KEYS = COUNTING.keys
GROUPS = COUNTING.groups


def expected_after(batches: int) -> Content:
    """What the job holds after batches 0 to `batches` - 1."""
    model: Content = {}
    for batch in range(batches):
        model = COUNTING.after(model, batch, COUNTING.rows(batch))
    return model


def counting_job(
    store: StateBackend | Storage | None = None, parallelism: int = 1, *, groups: int = GROUPS, **options: Any
) -> Job:
    """A job that counts, open."""
    job = Job(store, Counting(groups), parallelism=parallelism, **options)
    job.open()
    return job


def file_job(path: Any, parallelism: int = 1, **options: Any) -> Job:
    """The same, with its checkpoints in a directory."""
    return counting_job(FsStateBackend(path), parallelism, **options)


def small_job(storage: Storage, **options: Any) -> Job:
    """A job that counts, with short chains and small files, not yet open."""
    defaults = {"parallelism": 2, "inline_bytes": 300, "retained": 2, "policy": SHORT_CHAINS, "steady": True}
    return Job(storage, COUNTING, **{**defaults, **options})
