"""Sessions in columns: what a change of the way keeps, and which stages stay row by row.

That columns equal rows, over any cut of the input, is in `test_pane_columns`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import RowTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.runtime.aggregates import record
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.operator.operator import KeyedOperator
from tests.raising import raising
from tests.runtime.aggregates.test_pane_columns import GROUPS, KEYS, Slots, event, stage
from tests.runtime.aggregates.test_windowed_model import micros

GAP = es.EventTimeSessionWindows.with_gap(micros(10))


def test_a_session_that_has_fired_does_not_fire_again_after_a_restore() -> None:
    """Catches: a session that waits out its lateness and comes back as one that has yet to fire, or never does."""
    spec = stage(GAP, allowed_lateness=micros(50))
    for ways in ((True, True), (True, False), (False, True)):
        slots = Slots(spec, 1, ways[0])
        assert len(slots.batch([event("a", 1), event("b", 2), event("a", 21)])[0]) == 2
        after = slots.restored(ways[1], 2)
        assert after.batch([])[0] == []
        again = after.batch([event("b", 3)])[0]  # late: its session fires again, for its key alone
        assert len(again) == 1
        assert "'b'" in again[0]
        assert len(after.close_input()[0]) == 1
        assert after.entries() == [0, 0]


def test_sessions_go_from_columns_to_rocksdb(tmp_path: Path) -> None:
    """Catches: sessions that a backend without columns does not find, merge or close."""
    spec = stage(GAP, allowed_lateness=micros(8))
    first = [event(key, time) for time, key in enumerate("abcdefghabc")] + [event("a", 25), event("a", 40)]
    later = [event("a", 33), event("h", 41), event("b", 60)]
    found = []
    for in_columns in (True, False):
        slots = Slots(spec, 20, in_columns)
        begun = slots.batch(first)
        after = slots.restored(False, 2, tmp_path)
        found.append([begun, after.batch(later), after.close_input()])
        assert after.entries() == [0, 0]
        for operator in after.operators:
            operator.close()
    assert found[0] == found[1]


def test_sessions_of_records_without_bounds_go_to_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a stage that was stored before records of sessions had their bounds, and that loses its sessions."""
    found = []
    for in_columns in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(record, "SESSION", ())
            slots = Slots(stage(GAP), 5, False)
            slots.batch([event("a", 1), event("b", 4), event("a", 14, 3)])
        slots.spec = stage(GAP)  # made anew: with bounds
        after = slots.restored(in_columns, 2)
        found.append([after.batch([event("a", 9), event("b", 12)]), after.close_input()])
        assert after.entries() == [0, 0]
    assert found[0] == found[1]


def test_a_sum_that_is_too_large_when_sessions_merge() -> None:
    """Catches: a sum that wraps around when two sessions become one, or an error without key and aggregate."""
    slots = Slots(stage(GAP), 30, True)
    slots.batch([event("a", 1), event("b", 1, 2**63 - 1), event("b", 18, 1)])
    with raising(RowTypeError, key="b", field="total", operator="windows"):
        slots.batch([event("a", 2), event("b", 10, 0)])


@pytest.mark.parametrize(
    ("options", "lag"),
    [({"allowed_lateness": micros(5)}, 0), ({"allowed_lateness": micros(5000)}, 1), ({}, 5000)],
    ids=["fires at a row's own moment", "kept for long", "far out of order"],
)
def test_sessions_that_stay_row_by_row(options: dict[str, Any], lag: int) -> None:
    """Catches: a session that is extended before it has fired; keys whose many sessions are all moved for a new one."""
    spec = stage(GAP, **options)
    backend = HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS)
    operator = KeyedOperator("w", aggregate_function(spec), backend, out_of_orderness=micros(lag))
    operator.open()
    assert not operator._runner.takes_batches
