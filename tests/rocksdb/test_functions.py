"""Functions over RocksDB, in the harness: they put out what they do on the heap, and after every transaction what is
stored is restored on the heap and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.testing import Harness
from examples import session_windows
from tests.examples.test_other_examples import page
from tests.raising import raising
from tests.rocksdb.conftest import LIMIT

SCHEMA = "card string, shop string, amount bigint"


class Everything(es.KeyedProcessFunction):
    """Every kind of state, some with time to live, and timers."""

    total = es.value_state(int, default=0)
    shops = es.map_state(str, int, ttl="1 hour")
    amounts = es.list_state(int, ttl="10 minutes")
    largest = es.reducing_state(max, int)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        self.total.update(self.total.value() + row.amount)
        self.shops[row.shop] = self.shops.get(row.shop, 0) + 1
        self.amounts.add(row.amount)
        self.largest.add(row.amount)
        ctx.timers.register_processing_time("quiet", ctx.processing_time + timedelta(minutes=5))
        if row.amount < 0:
            raise ValueError("a row that fails")
        yield row.card, "row", [self.total.value(), self.largest.get(), *sorted(dict(self.shops).values())]

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield ctx.key, timer.name, list(self.amounts.get() or [])


def drive(harness: Harness) -> list[Any]:
    """A life with failures, crashes and another parallelism; what was put out."""
    with harness:
        for round_ in range(6):
            harness.process(*[(f"c{n % 7}", f"s{n % 3}", round_ + n) for n in range(20)])
            with raising(es.errors.UserFunctionError, "a row that fails"):
                harness.process(("c1", "s9", 999), ("c2", "s9", -1))
            harness.advance_processing_time("7 minutes")
            if round_ == 2:
                harness.crash()
            if round_ == 4:
                harness.restore(parallelism=3)
        harness.advance_processing_time("2 hours")
        assert harness.keys("shops") == []
        harness.check_invariants()
        return sorted(map(tuple, harness.output), key=repr)


def everything(**options: Any) -> list[Any]:
    """What `Everything` puts out."""
    output = "card string, what string, numbers array<bigint>"
    return drive(Harness(Everything(), schema=SCHEMA, key="card", output=output, parallelism=2, **options))


def sessions(**options: Any) -> list[Any]:
    """What merging windows put out."""
    with session_windows.harness(**options) as visits:
        visits.process_batch([page(0, "/b"), page(45, "/c")])
        visits.process_batch([page(44.5, "/x")])
        visits.crash()
        visits.restore(parallelism=4)
        visits.close_input()
        assert visits.timers() == []
        return list(map(tuple, visits.output))


@pytest.mark.parametrize("run", [everything, sessions])
def test_a_function_does_the_same_as_on_the_heap(run: Callable[..., list[Any]], tmp_path: Path) -> None:
    """Catches: a runtime that knows the heap only: states, timers, windows, roll-back, clean-up, restarts."""
    backend = es.RocksDBStateBackend(tmp_path / "checkpoints", memory=LIMIT, local_directory=tmp_path / "local")
    found = run(state_backend=backend)
    assert found and (tmp_path / "local").is_dir()
    assert found == run()
