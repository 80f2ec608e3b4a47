"""Windowed aggregates in columns against the same row by row: results, late rows and counts of every batch.

Over any cut of the input, parallelism, lateness, failed attempts, and restores in between, which change the
parallelism, the way the stage works, or both.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import RowTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.rocksdb import RocksDBKeyedStateBackend
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.spec import TIME, AggregateSpec
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.times import MAX_TIME, MIN_TIME
from tests.effort import examples
from tests.raising import raising
from tests.runtime.aggregates.oracle import AGGREGATES, SCHEMA, Combiner, Event, events
from tests.runtime.aggregates.test_windowed_model import LATE, cut, micros, windows

IN_RECORD = {name: one for name, one in AGGREGATES.items() if one.in_record}
KEYS = KeySchema.from_python(str)
GROUPS = 8


def slots_of(parallelism: int) -> list[KeyGroupRange]:
    """The key groups of every slot."""
    bounds = [GROUPS * slot // parallelism for slot in range(parallelism + 1)]
    return [KeyGroupRange(start, end - 1) for start, end in itertools.pairwise(bounds)]


class Slots:
    """The operators of a stage, driven batch by batch; in columns, or row by row."""

    def __init__(
        self, spec: AggregateSpec, lag: int, in_columns: bool, parallelism: int = 1, rocksdb: Path | None = None
    ) -> None:
        self.spec, self.lag, self.in_columns, self.rocksdb = spec, lag, in_columns, rocksdb
        self.combiner = Combiner(spec)
        self.watermark = -(2**63)
        self.operators = [self._operator(groups) for groups in slots_of(parallelism)]

    def _operator(self, groups: KeyGroupRange) -> KeyedOperator:
        late = {} if self.spec.window is None or self.spec.window.late_output is None else {LATE: self.spec.input}
        backend: Any = HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS, key_group_range=groups)
        if self.rocksdb is not None:
            backend = RocksDBKeyedStateBackend(KEYS, self.rocksdb, max_parallelism=GROUPS, key_group_range=groups)
        operator = KeyedOperator(
            "windows",
            aggregate_function(self.spec),
            backend,
            inputs=[KeyedInput(self.spec.partial, self.spec.keys, event_time=TIME)],
            output=self.spec.output,
            side_outputs=late,
            out_of_orderness=micros(self.lag),
        )
        with pytest.MonkeyPatch.context() as patch:
            if not self.in_columns:
                patch.setattr(HeapKeyedStateBackend, "get_column_state", lambda self, *args, **options: None)
            operator.open()
        assert operator._runner.takes_batches == self.in_columns
        return operator

    def batch(self, batch: list[Event], cuts: int = 1, fails: bool = False) -> list[Any]:
        """What a batch gives: outputs, late rows and counts, all slots together."""
        partials = self.combiner.combined(batch, self.watermark)
        shown: list[Any] = [[], [], 0, 0, 0, {}, MIN_TIME]
        for operator in self.operators:
            groups = operator.backend.context.key_group_range
            mine = [row for row in partials if KEYS.key_group(row[0], GROUPS) in groups]
            if fails:
                with operator.snapshot() as before:
                    self._transact(operator, mine, cuts)
                    self._roll_back(operator, before)
            result = self._transact(operator, mine, cuts)
            operator.check_invariants()
            shown[0] += [repr(tuple(row)) for row in result.main]
            shown[1] += [repr(tuple(row)) for row in result.outputs[LATE].rows] if LATE in result.outputs else []
            shown[2] += result.rows
            shown[3] += result.late_rows
            shown[4] += result.late_rows_dropped
            shown[6] = max(shown[6], MIN_TIME if result.max_event_time is None else result.max_event_time)
            shown[5] = {name: shown[5].get(name, 0) + count for name, count in (shown[5] | result.counters).items()}
        self.watermark = max([self.watermark, *(event.ts - self.lag for event in batch)])
        return [sorted(shown[0]), sorted(shown[1]), *shown[2:]]

    def _roll_back(self, operator: KeyedOperator, before: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if not self.in_columns:
                patch.setattr(HeapKeyedStateBackend, "get_column_state", lambda self, *args, **options: None)
            operator.roll_back(before)

    def _transact(self, operator: KeyedOperator, rows: list[Any], cuts: int) -> Any:
        operator.begin(processing_time=0, watermark=self.watermark)
        size = max(1, -(-len(rows) // cuts))
        for start in range(0, len(rows), size):
            part = [tuple(row) for _, _, row in rows[start : start + size]]
            operator.process_batch(batch_of(part, self.spec.partial))
        return operator.end()

    def restored(self, in_columns: bool, parallelism: int, rocksdb: Path | None = None) -> Slots:
        """The stage after a restart from its state files."""
        files = []
        for number, operator in enumerate(self.operators):
            with operator.backend.snapshot() as snapshot:
                files.append((f"base {number}", b"".join(BaseWriter(operator.backend, snapshot))))
        made = Slots(self.spec, self.lag, in_columns, parallelism, rocksdb)
        made.watermark = self.watermark
        for operator in made.operators:
            mine = operator.backend.context.key_group_range
            readers = [StateFileReader.of_bytes(data, name=name) for name, data in files]
            restore([reader for reader in readers if set(reader.meta.key_groups) & set(mine)], operator.backend)
        return made

    def close_input(self) -> list[Any]:
        """What is left."""
        self.watermark = MAX_TIME
        return self.batch([])

    def entries(self) -> list[int]:
        """How much is left: entries and timers."""
        backends = [operator.backend for operator in self.operators]
        queues = [len(queue) for backend in backends for queue in backend.timer_queues.values()]
        return [sum(backend.number_of_entries() for backend in backends), sum(queues)]


def renamed(found: list[Event], names: list[str]) -> list[Event]:
    """The rows with keys of more key groups."""
    return [event._replace(key=names[number % len(names)]) for number, event in enumerate(found)]


@given(kind=st.sampled_from(["tumbling", "sliding", "session"]), lateness=st.sampled_from([0, 9]), data=st.data())
@settings(max_examples=examples(120), deadline=None)
def test_columns_equal_rows(kind: str, lateness: int, data: st.DataObject) -> None:
    """Catches: a window that columns close at another time, twice, not at all, or with other rows in it; a late row

    that is lost, taken or counted otherwise; what a failed attempt leaves; a window that has fired and fires again
    after a restore, or never fires after it, with other slots or in the other way of working; state left over.
    """
    rows = data.draw(windows(kind, lateness))
    if data.draw(st.booleans()):
        rows = es.window(rows.assigner, allowed_lateness=micros(lateness))
    emit = None if kind == "session" else data.draw(st.sampled_from([None, "changed"]))
    spec = AggregateSpec.of(IN_RECORD, SCHEMA, ["key"], event_time="ts", window=rows, emit=emit)
    lag = data.draw(st.integers(int(kind == "session" and lateness > 0), 20))
    found = renamed(data.draw(events()), data.draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8)))
    plain, other = Slots(spec, lag, False), Slots(spec, lag, True)
    for batch in [*cut(data.draw, found), []]:  # type: ignore[arg-type]
        cuts = data.draw(st.integers(1, 3))
        expected = plain.batch(batch, cuts)
        assert other.batch(batch, cuts, fails=data.draw(st.booleans())) == expected
        if data.draw(st.booleans()):
            parallelism = data.draw(st.sampled_from([1, 2, 4]))
            plain = plain.restored(False, parallelism)
            other = other.restored(data.draw(st.booleans()), parallelism)
    assert other.close_input() == plain.close_input()
    assert plain.entries() == other.entries() == [0, 0]


def event(key: str, time: int, amount: int = 1) -> Event:
    """A row that matters by its key, time and amount alone."""
    return Event(key, time, amount, None, None, None, None)


def stage(assigner: Any, **options: Any) -> AggregateSpec:
    """A sum in windows."""
    window = es.window(assigner, **options)
    return AggregateSpec.of({"total": es.sum("amount")}, SCHEMA, ["key"], event_time="ts", window=window)


def test_a_window_that_has_fired_does_not_fire_again_after_a_restore() -> None:
    """Catches: end timers that come back for windows which wait out their lateness, in any change of the way."""
    spec = stage(es.SlidingEventTimeWindows.of(micros(10), micros(5)), allowed_lateness=micros(50))
    closed = stage(es.SlidingEventTimeWindows.of(micros(14), micros(4)))
    for first, second in ((True, True), (True, False), (False, True)):
        slots = Slots(closed, 0, first)
        slots.batch([event("d", 50), event("d", 59)])
        assert slots.restored(second, 2).batch([])[0] == []
        slots = Slots(spec, 0, first)
        emitted = slots.batch([event("a", 1), event("b", 2), event("a", 21)])[0]
        assert len(emitted) == 4
        after = slots.restored(second, 2)
        assert after.batch([])[0] == []
        assert len(after.batch([event("b", 3)])[0]) == 2  # late: both of its windows fire again, for its key alone


def test_a_key_group_without_rows_goes_to_columns_and_back() -> None:
    """Catches: timers of single keys that columns leave as they are where no row comes, and that nobody finds later."""
    spec = stage(es.SlidingEventTimeWindows.of(micros(10), micros(5)), allowed_lateness=micros(8))
    first = [event(key, time) for time, key in enumerate("abcdefgh")]
    found = []
    for ways in ((False, True, False), (False, False, False)):
        slots, shown = Slots(spec, 0, ways[0]), []
        shown.append(slots.batch(first))
        for way in ways[1:]:
            slots = slots.restored(way, 2)
            shown.append(slots.batch([event("a", 9)]))
        shown.append(slots.close_input())
        assert slots.entries() == [0, 0]
        found.append(shown)
    assert found[0] == found[1]


def test_a_stage_goes_from_columns_to_rocksdb(tmp_path: Path) -> None:
    """Catches: keys that never close on a backend without columns, because only their key group had timers."""
    spec = stage(es.SlidingEventTimeWindows.of(micros(10), micros(5)), allowed_lateness=micros(8))
    first = [event(key, time) for time, key in enumerate("abcdefghabc")]
    later = [event("a", 9), event("h", 12), event("b", 40)]
    found = []
    for in_columns in (True, False):
        slots = Slots(spec, 0, in_columns)
        begun = slots.batch(first)
        after = slots.restored(False, 2, tmp_path)
        found.append([begun, after.batch(later), after.close_input()])
        assert after.entries() == [0, 0]
        for operator in after.operators:
            operator.close()
    assert found[0] == found[1]


def test_a_sum_over_panes_that_is_too_large() -> None:
    """Catches: a sum that wraps around when panes are merged, or an error without key and aggregate."""
    slots = Slots(stage(es.SlidingEventTimeWindows.of(micros(10), micros(5))), 0, True)
    with raising(RowTypeError, key="b", field="total", operator="windows"):
        slots.batch([event("a", 1), event("b", 6, 2**63 - 1), event("b", 11, 1), event("a", 30)])


def test_what_stays_row_by_row() -> None:
    """Catches: a stage that columns would run without what it declares."""
    tumbling, sessions = es.TumblingEventTimeWindows.of(micros(10)), es.EventTimeSessionWindows.with_gap(micros(10))
    every = es.every(micros(7))
    for aggregates, assigner, one in (
        (IN_RECORD, tumbling, every),
        (AGGREGATES, tumbling, None),
        (IN_RECORD, sessions, every),
        (IN_RECORD, sessions, "changed"),
    ):
        window = es.window(assigner)
        spec = AggregateSpec.of(aggregates, SCHEMA, ["key"], event_time="ts", window=window, emit=one)
        operator = KeyedOperator("w", aggregate_function(spec), HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS))
        operator.open()
        assert not operator._runner.takes_batches


def test_a_stage_that_others_follow_gets_single_rows() -> None:
    """Catches: results without their origins, which the next stage needs; outputs that nobody asks the function for."""
    spec = stage(es.TumblingEventTimeWindows.of(micros(10)))
    operator = KeyedOperator(
        "windows",
        aggregate_function(spec),
        HeapKeyedStateBackend(KEYS, max_parallelism=GROUPS),
        inputs=[KeyedInput(spec.partial, spec.keys, event_time=TIME)],
        output=spec.output,
        followed=True,
    )
    operator.open()
    assert not operator._runner.takes_batches
