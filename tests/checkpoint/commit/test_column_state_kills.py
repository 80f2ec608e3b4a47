"""A job whose state is in columns, killed at every storage call: what is found is the last committed checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.columns.folds import add_ints, distinct_rows
from emberstate.heap.columns.layout import Column
from emberstate.state.key_bytes import key_bytes
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.testing.faults import FaultPlan, FaultyStorage, SimulatedKill
from tests.checkpoint.driver import SHORT_CHAINS, Job
from tests.checkpoint.stored import SharedMemory
from tests.checkpoint.work import Content, Output, Work
from tests.heap.columns.test_column_state import TOTAL

WINDOW = 4  # batches


class Totals(Work):
    """Counts keys in windows of some batches, by whole batches; a window is dropped two windows later."""

    name = "totals"

    def declare(self, backend: KeyedStateBackend) -> None:
        assert isinstance(backend, HeapKeyedStateBackend)
        backend.get_column_state(TOTAL)

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[str]) -> list[Output]:
        table = backend.get_column_state(TOTAL)
        mine = [row for row in rows if self.owns(backend, row)]
        batch = task.batch.id
        keys = [key_bytes(self.keys).encode(row) for row in mine]
        offsets = np.cumsum([0, *map(len, keys)], dtype=np.int64)
        groups = np.array([self.keys.key_group(row, self.groups) for row in mine], np.int32)
        number = table.namespace_numbers([f"w{batch // WINDOW}"])[0]
        found = table.rows_of(b"".join(keys), offsets, groups, np.full(len(mine), number, np.int32))
        distinct, positions = distinct_rows(found, table.store.scratch)
        columns: list[Column] = table.gather(distinct)
        ones = np.ones(len(mine), np.int64)
        known = np.zeros(len(distinct), np.bool_)
        add_ints(columns[0].values, known, positions, ones, np.zeros(len(mine), np.bool_))
        table.write(distinct, columns)
        table.remove_rows(table.rows_in([f"w{batch // WINDOW - 2}"]))
        return [("main", 1, f"slot {task.slot} batch {batch}".encode())]

    def content(self, backend: Any) -> Content:
        return {(key, namespace): record.n for key, namespace, record in backend.registered_kv_states["total"]}

    def rows(self, batch: int) -> list[str]:
        return [f"k{(batch * 7 + i * i) % 23}" for i in range(12)]

    def after(self, model: Content, batch: int, rows: Sequence[str]) -> Content:
        window, gone = f"w{batch // WINDOW}", f"w{batch // WINDOW - 2}"
        model = {place: n for place, n in model.items() if place[1] != gone}
        for row in rows:
            model[row, window] = model.get((row, window), 0) + 1
        return model


def expected_after(batches: int) -> Content:
    model: Content = {}
    for batch in range(batches):
        model = Totals().after(model, batch, Totals().rows(batch))
    return model


def job_on(storage: Any, parallelism: int = 2, **options: Any) -> Job:
    return Job(storage, Totals(), parallelism=parallelism, policy=SHORT_CHAINS, inline_bytes=300, **options)


@pytest.mark.long
def test_a_kill_at_every_call() -> None:
    """Catches: a base written in the background, or a delta, that misses rows of columns or has rows of another batch;
    a restore into columns at another parallelism that loses some."""
    found = SharedMemory()
    job = job_on(found, steady=True)
    job.open()
    job.run_until(8)
    assert job.content() == expected_after(8)
    job.close()
    for nth in itertools.count(1):
        storage = FaultyStorage(found.copy(), FaultPlan({}))
        storage.plan.fail(SimulatedKill(), nth=nth)
        job = job_on(storage, steady=True)
        try:
            job.open()
            job.run_until(11)
        except SimulatedKill:
            job.close()
        again = job_on(storage.inner, 1 + nth % 3)
        again.open()
        assert 8 <= again.next_batch <= 11
        assert again.restored() == expected_after(again.next_batch)
        if nth % 6 == 0:
            again.close()
            again = job_on(storage.inner, 1 + nth % 3)
            again.open()
            again.run_until(13)
            assert again.content() == expected_after(13)
        again.close()
        if len(storage.plan.calls) < nth:
            break


def test_rewrites_in_the_background() -> None:
    """Catches: a reader of a snapshot that sees what later batches did to the rows."""
    job = job_on(SharedMemory())
    job.open()
    for until in range(1, 40):
        job.run_until(until)
        if until % 9 == 0:
            job.wait_for_rewrites()
            assert job.restored() == expected_after(until)
            job.open(keep_slots=True)
    job.wait_for_rewrites()
    assert job.content() == expected_after(39)
    job.close()
