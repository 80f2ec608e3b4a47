"""Aggregates that change between two runs of a job: added, removed, of another kind, over a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import RestoreRefusedError
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.testing import Harness
from tests.raising import raising
from tests.testing.support import BACKENDS, at

BEFORE: dict[str, Aggregate] = {"n": es.count(), "total": es.sum("v"), "values": es.distinct("v")}
WINDOWS = {
    "running": None,
    "tumbling": es.window(es.TumblingEventTimeWindows.of("1 minute")),
    "sliding": es.window(es.SlidingEventTimeWindows.of("1 minute", "20 seconds")),
    "sessions": es.window(es.EventTimeSessionWindows.with_gap("1 minute")),
}


def harness(kind: str, backend: str, folder: Path) -> Harness:
    """A stage that has two rows of one key, at second 1 and 2."""
    made = Harness.of_aggregates(
        BEFORE, schema="k string, ts timestamp, v int, f double", key="k", event_time="ts",
        window=WINDOWS[kind], state_backend=BACKENDS[backend](folder),
    )  # fmt: skip
    made.process_batch([("ann", at(1), 5, 0.5), ("ann", at(2), 7, 0.5)])
    made.take()
    return made


@pytest.mark.parametrize("backend", ["fs", "rocksdb"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_aggregates_come_and_go(kind: str, backend: str, tmp_path: Path) -> None:
    """Catches: an added aggregate that breaks the restore or does not start empty; one that goes with what others

    have accumulated; a record that one backend restores and the other does not.
    """
    with harness(kind, backend, tmp_path) as stage:
        added = {**BEFORE, "most": es.max("v"), "mean": es.mean("v"), "last": es.last("f"), "all": es.collect("v")}
        assert stage.verdict(aggregates=added).kind == "migrates"
        stage.restore(aggregates=added, parallelism=2)
        stage.process(("ann", at(3), 6, 1.5))
        stage.close_input()
        [*_, row] = [row for row in stage.output if row.n == 3]
        assert (row.n, row.total, row.values) == (3, 18, 3)
        assert (row.most, row.mean, row.last, row.all) == (6, 6.0, 1.5, [6])
    with harness(kind, backend, tmp_path / "removed") as stage:
        removed = {"n": es.count(), "values": es.distinct("v")}
        stage.restore(aggregates=removed)
        stage.process(("ann", at(3), 6, 1.5))
        stage.close_input()
        assert [tuple(row[-2:]) for row in stage.output if row.n == 3][-1:] == [(3, 3)]


@pytest.mark.parametrize(
    ("aggregates", "expected", "differs"),
    [
        ({**BEFORE, "total": es.sum("f")}, "migrates", "removed `total__sum__v`"),
        ({**BEFORE, "total": es.max("v")}, "migrates", "removed `total__sum__v`"),
        ({**BEFORE, "total": es.first("v")}, "migrates", "added `total__first__v`"),
        ({**BEFORE, "n": es.count("v")}, "migrates", "removed `n__count`"),
        ({**BEFORE, "values": es.distinct("f")}, "refused", "drop_states=['aggregates: values__distinct__v']"),
        ({**BEFORE, "values": es.collect("v")}, "refused", "drop_states=['aggregates: values__distinct__v']"),
        ({"n": es.count(), "total": es.sum("v")}, "refused", "drop_states=['aggregates: values__distinct__v']"),
        ({"values": es.distinct("v")}, "migrates", "removed `n__count`"),
    ],
)
def test_another_aggregate_of_the_same_name(aggregates: Any, expected: str, differs: str, tmp_path: Path) -> None:
    """Catches: a maximum that goes on from a sum, or the sum of one column from that of another, without a word."""
    with harness("running", "fs", tmp_path) as stage:
        verdict = stage.verdict(aggregates=aggregates)
        assert verdict.kind == expected
        assert differs in str(verdict)
        if expected == "refused":
            with raising(RestoreRefusedError):
                stage.restore(aggregates=aggregates)
            aggregates = BEFORE  # it goes on with what it had
        else:
            stage.restore(aggregates=aggregates)
        [row] = stage.process(("ann", at(3), 1, 1.0))
        # What was aggregated otherwise starts with the new row.
        for name, kept in {"n": 3, "total": 13}.items():
            if name in aggregates:
                assert getattr(row, name) == (kept if aggregates[name] == BEFORE[name] else 1)


def test_windows_of_another_length_are_not_misread(tmp_path: Path) -> None:
    """Catches: slices of one grid taken for those of another, in the record or in the states beside it."""
    with harness("sliding", "fs", tmp_path) as stage:
        names = {verdict.name for verdict in stage.verdict().states}
    assert {name for name in names if "size=60000000 slide=20000000" in name} == {
        "window-contents of slices size=60000000 slide=20000000 offset=0",
        "window-contents of slices size=60000000 slide=20000000 offset=0: values__distinct__v",
        "window-slices size=60000000 slide=20000000 offset=0",
    }
