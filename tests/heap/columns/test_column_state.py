"""A state in columns as one of a backend's: handles, expiry, readers on other threads."""

from __future__ import annotations

import dataclasses
import random
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from emberstate.errors import StateDeclarationError
from emberstate.heap import ttl_sweep
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.snapshots import SnapshotRegistry
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import AggregatingStateDescriptor
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig
from emberstate.state.ttl.stamped import Stamped
from tests.heap.columns.test_column_table_model import Total, batch, content_at, make_table
from tests.heap.conftest import COMPILED


class Adding(AggregateFunction[int, Total, int]):
    """Counts and keeps the sum."""

    def create_accumulator(self) -> Total:
        return Total(0, 0.0)

    def add(self, value: int, accumulator: Total) -> Total:
        return dataclasses.replace(accumulator, n=accumulator.n + value)

    def merge(self, one: Total, other: Total) -> Total:
        return dataclasses.replace(one, n=one.n + other.n)

    def get_result(self, accumulator: Total) -> int:
        return accumulator.n


TOTAL = AggregatingStateDescriptor("total", Adding(), Total)
EXPIRING = AggregatingStateDescriptor("total", Adding(), Total, ttl=TtlConfig(timedelta(microseconds=10)))


def make_backend() -> HeapKeyedStateBackend:
    """An empty one."""
    return HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)


def test_a_handle_works_over_columns() -> None:
    """Catches: a handle that changes a copy and not the state, or a roll-back that leaves columns as they are."""
    backend = make_backend()
    table = backend.get_column_state(TOTAL)
    total = backend.get_partitioned_state(TOTAL)
    backend.set_current_key("ann")
    total.add(3)
    with backend.snapshot() as before:
        total.add(4)
        assert total.get() == 7
        assert [change[1] for name, _, change in backend.changes(before)] == [""]
        backend.roll_back(before)
        backend.set_current_key("ann")
        assert total.get() == 3
    total.clear()
    assert total.get() is None
    assert (len(table), backend.number_of_entries()) == (0, 0)
    backend.check_invariants()
    assert backend.statistics().states[0].entries == 0


def test_a_state_of_objects_does_not_become_columns() -> None:
    """Catches: a column table that stands beside entries it does not have."""
    backend = make_backend()
    backend.get_partitioned_state(TOTAL)
    with pytest.raises(StateDeclarationError) as caught:
        backend.get_column_state(TOTAL)
    assert caught.value.state == "total"


def test_what_has_expired_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a sweep that skips rows of columns, or removes what is alive."""
    monkeypatch.setattr(ttl_sweep, "ROWS", 3)
    backend = make_backend()
    table = backend.get_column_state(EXPIRING)
    backend.ttl_clock.processing_time = 100
    for number in range(20):
        backend.set_current_key(f"k{number}")
        table.put("", Stamped(Total(number), 85 + number))
    assert backend.clean_up(10_000) == 6
    assert sorted(record.value.n for _, _, record in table) == list(range(6, 20))
    backend.check_invariants()


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let threads switch as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("many_switches")
def test_readers_see_what_was_there_while_the_owner_goes_on() -> None:
    """Catches: a row changed before it is saved, freed or given to another key under a reader, an image moved by a
    release while it is read."""
    seed = 7
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    table = make_table(SnapshotRegistry())
    model: dict[Any, Total] = {}
    problems: list[str] = []
    space = 40

    def read(point: Any, expected: dict[Any, Total]) -> None:
        try:
            if content_at(table, point) != expected:
                problems.append(f"snapshot {point.version} reads as something else")
        except Exception as error:
            problems.append(repr(error))
        finally:
            point.release()

    def change() -> None:
        pairs = dict.fromkeys((f"k{chance.randrange(space)}", f"w{chance.randrange(3)}") for _ in range(20))
        places = list(pairs)
        rows = table.rows_of(*batch(table, places))
        records = [Total(chance.randrange(99), chance.random()) for _ in places]
        table.write(rows, table.layout.columns_of(records))
        model.update(zip(places, records, strict=True))
        gone = [place for place in places if chance.random() < 0.4]
        data, offsets, _, numbers = batch(table, gone)
        table.remove_rows(table.find_rows(data, offsets, numbers))
        for place in gone:
            del model[place]

    threads: list[threading.Thread] = []
    for _ in range(60 if COMPILED else 15):
        change()
        point = table.registry.snapshot()
        kept = dict(model)
        threads.append(threading.Thread(target=read, args=(point, kept)))
        threads[-1].start()
        change()
        space = min(400, space + 5)
        if chance.random() < 0.2:
            again = table.registry.snapshot()
            kept = dict(model)
            change()
            table.registry.roll_back(again)
            model = kept
            again.release()
        while sum(thread.is_alive() for thread in threads) > 3:
            threads.pop(0).join()
    for thread in threads:
        thread.join()
    assert problems == []
    table.check_invariants()
    assert {(key, namespace): record for key, namespace, record in table} == model
    assert np.count_nonzero(table.store.alive) == len(model)
