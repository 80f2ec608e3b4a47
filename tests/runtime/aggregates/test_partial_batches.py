"""Partial rows as record batches: what the operator counts, the watermark that follows, and any cut of the input."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.errors import InvariantError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.spec import PANE_START, TIME, AggregateSpec
from emberstate.runtime.operator.held_rows import HELD_ROWS
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.keyed_input import KeyedInput
from tests.effort import examples
from tests.raising import raising
from tests.runtime.aggregates.oracle import AGGREGATES, SCHEMA, Combiner, Event, comparable, events, expected


def opened(spec: AggregateSpec, **options: Any) -> KeyedOperator:
    """An operator of the stage; its function has been to another process and back."""
    operator = KeyedOperator(
        "stage",
        pickle.loads(pickle.dumps(aggregate_function(spec))),
        HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=8),
        inputs=[KeyedInput(spec.partial, spec.keys, event_time=TIME)],
        output=spec.output,
        **options,
    )
    operator.open()
    return operator


def run(operator: KeyedOperator, spec: AggregateSpec, partials: list[Any]) -> Any:
    """One transaction with these partial rows."""
    operator.begin(processing_time=0)
    if partials:
        operator.process_batch(batch_of([tuple(row) for _, _, row in partials], spec.partial))
    return operator.end()


def spec_of(window: Any = None, **aggregates: Any) -> AggregateSpec:
    """A stage over the rows of the oracle."""
    return AggregateSpec.of(aggregates or AGGREGATES, SCHEMA, ["key"], event_time="ts", window=window)


def event(key: str, time: int) -> Event:
    """A row that matters by its key and time alone."""
    return Event(key, time, 1, None, None, None, None)


@pytest.mark.parametrize(
    "window",
    [
        None,
        es.window(es.TumblingEventTimeWindows.of("100 microseconds")),
        es.window(es.EventTimeSessionWindows.with_gap("40 microseconds")),
    ],
    ids=["running", "tumbling", "sessions"],
)
def test_the_operator_counts_input_rows_and_sees_their_latest_time(window: Any) -> None:
    """Catches: a batch counted by its partial rows; sessions, handled at their first row, that hold time back."""
    spec = spec_of(window, n=es.count())
    operator = opened(spec)
    partials = Combiner(spec).combined([event("ann", 3), event("ann", 30), event("bob", 5), event("ann", 21)], 0)
    result = run(operator, spec, partials)
    assert len(partials) == 2
    assert (result.rows, result.max_event_time, operator.statistics().rows) == (4, 30, 4)


@given(data=st.data())
@settings(max_examples=examples(60))
def test_running_results_do_not_depend_on_the_cut(data: st.DataObject) -> None:
    """Catches: a row that is merged twice or lost, in any aggregate, however the input is cut and combined."""
    spec = spec_of()
    operator, combiner = opened(spec), Combiner(spec)
    latest: dict[str, Any] = {}
    seen: list[Event] = []
    found = data.draw(events())
    while found:
        count = data.draw(st.integers(1, 12))
        batch, found = found[:count], found[count:]
        seen += sorted(batch, key=lambda one: one.ts)
        partials = combiner.combined(batch, 0) if data.draw(st.booleans()) else combiner.single(batch)
        if data.draw(st.booleans()):  # a failed attempt before
            with operator.snapshot() as snapshot:
                run(operator, spec, partials)
                operator.roll_back(snapshot)
        outputs = run(operator, spec, partials).main
        changed = [row[0] for row in outputs]
        assert sorted(changed) == sorted({one.key for one in batch})
        latest.update({row[0]: tuple(row[1:]) for row in outputs})
    for key, results in latest.items():
        assert comparable(results) == comparable(expected([one for one in seen if one.key == key]))
    operator.check_invariants()


def test_a_pane_that_its_time_is_not_in_is_rejected() -> None:
    """Catches: rows combined by other windows than the stage's, which would be merged into windows they are not in."""
    spec = spec_of(es.window(es.TumblingEventTimeWindows.of("100 microseconds")), n=es.count())
    [(key, time, row)] = Combiner(spec).single([event("ann", 3)])
    values = list(row)
    values[spec.partial.position(PANE_START)] = 50
    with pytest.raises(es.EmberstateError) as caught:
        run(opened(spec), spec, [(key, time, values)])
    with raising(InvariantError):
        raise caught.value.__cause__ or caught.value


def test_held_rows_do_not_depend_on_what_is_aggregated() -> None:
    """Catches: a stage after another whose aggregates cannot change, since rows wait with those columns; a held row

    that is aggregated otherwise than one that was not.
    """
    window = es.window(es.TumblingEventTimeWindows.of("20 microseconds"))
    given = [event("ann", 3), event("ann", 11)._replace(amount=None), event("bob", 15), event("ann", 25)]
    stored = []
    for aggregates in (AGGREGATES, {"n": es.count()}):
        spec = spec_of(window, **aggregates).with_whole_rows(True)
        operator = opened(spec, follows=True)
        batch = [(None, None, (one.key, 1, one.row()[1], one.row())) for one in given]
        assert run(operator, spec, batch).main == []
        [held] = [s.descriptor for name, s in operator.backend.registered_states.items() if name == HELD_ROWS]
        stored.append(held.declared())
        operator.begin(processing_time=0, watermark=24)
        plain = spec.with_whole_rows(False)
        direct = run(opened(plain), plain, Combiner(plain).combined(given, 0)).main
        shown = [sorted(repr(tuple(row)) for row in rows) for rows in (operator.end().main, direct)]
        assert shown[0] == shown[1] != []
    assert stored[0] == stored[1]
