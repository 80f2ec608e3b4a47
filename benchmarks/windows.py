"""Windows: sliding windows in slices against one copy per window, and tumbling windows against a loop written by hand.

Sliding: a minute sliding by a second, so that a row is in 60 windows. In slices it is stored once; with a trigger that
purges, windows are stored each for itself, as one would without slices. Outputs are the same, and are compared.

Tumbling: the same count per key and window by a function with a map state and timers, which is what one writes without
windows. Nothing is promised; it says what the generality of triggers and lateness costs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.measure import SEED, Target, print_table, save, side_by_side
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeySchema
from emberstate.runtime.functions.declared_states import map_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.columns import KEY_GROUP_COLUMN
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.times import from_micros
from emberstate.runtime.windows import (
    EventTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    window,
)
from emberstate.state.states import AggregateFunction

ROWS = 40_000
KEYS = 100
SECOND = 1_000_000
EVERY = SECOND // 50  # between two rows
SLIDING = SlidingEventTimeWindows.of("1 minute", "1 second")
TUMBLING = TumblingEventTimeWindows.of("1 minute")
KEY_SCHEMA = KeySchema.from_python(int)


class Count(AggregateFunction[Any, int, int]):
    """How many rows."""

    def create_accumulator(self) -> int:
        """None yet."""
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        """One more."""
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        """As it is."""
        return accumulator

    def merge(self, one: int, other: int) -> int:
        """Both."""
        return one + other


class WithKey(ProcessWindowFunction):
    """Key, start of the window, and count."""

    def process(self, key: Any, ctx: Any, elements: list[Any]) -> Any:
        """One row."""
        return key, ctx.window.start, elements[0]


class ByHand(KeyedProcessFunction):
    """Tumbling windows as a map from start to count, with a timer for each."""

    counts = map_state(int, int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        """Count, and wait for the end."""
        start = ctx.timestamp_micros // (60 * SECOND) * (60 * SECOND)
        counts = self.counts
        counts[start] = counts.get(start, 0) + 1
        ctx.timers.register_event_time("end", from_micros(start + 60 * SECOND))

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        """Put the count out."""
        start = timer.micros - 60 * SECOND
        yield ctx.key, start, self.counts.pop(start)


def batch_of(rows: int) -> pa.RecordBatch:
    """Rows in order of event time, with their key groups."""
    rng = random.Random(SEED)
    group = KEY_SCHEMA.key_grouper(DEFAULT_MAX_PARALLELISM)
    keys = [rng.randrange(KEYS) for _ in range(rows)]
    return pa.record_batch(
        {
            "k": pa.array(keys, pa.int64()),
            "ts": pa.array(range(0, rows * EVERY, EVERY), pa.timestamp("us", "UTC")),
            KEY_GROUP_COLUMN: pa.array([group(key) for key in keys], pa.int32()),
        }
    )


def run(function: KeyedProcessFunction, batch: pa.RecordBatch) -> tuple[list[Any], int]:
    """What came out of one transaction, and how many entries of state were left at its end."""
    operator = KeyedOperator(
        "windows",
        function,
        HeapKeyedStateBackend(KEY_SCHEMA),
        inputs=[KeyedInput("k bigint, ts timestamp", ["k"], event_time="ts")],
    )
    operator.open()
    with operator.snapshot():
        operator.begin(processing_time=0)
        operator.process_batch(batch)
        return operator.end().main, operator.backend.number_of_entries()


def compared(
    name: str,
    candidate: Callable[[], KeyedProcessFunction],
    baseline: Callable[[], KeyedProcessFunction],
    batch: pa.RecordBatch,
    rounds: int,
) -> dict[str, Any]:
    """Time and state of one against the other, which must put out the same."""
    (ours, entries), (theirs, their_entries) = run(candidate(), batch), run(baseline(), batch)
    assert sorted(ours) == sorted(theirs), "the two do not do the same"
    mine, other, ratio = side_by_side(lambda _: run(candidate(), batch), lambda _: run(baseline(), batch), rounds)
    return {
        f"{name}: µs per row": mine / batch.num_rows * 1e6,
        f"{name}: µs per row of the baseline": other / batch.num_rows * 1e6,
        f"{name}: time to the baseline's": ratio,
        f"{name}: entries of state": entries,
        f"{name}: entries of state to the baseline's": entries / their_entries,
    }


def main(rows: int = ROWS, rounds: int = 5) -> dict[str, Any]:
    """Measure, print and save."""
    purging = PurgingTrigger(EventTimeTrigger())
    results = compared(
        "sliding",
        lambda: window(SLIDING).aggregate(Count(), function=WithKey()),
        lambda: window(SLIDING, trigger=purging).aggregate(Count(), function=WithKey()),
        batch_of(rows // 4),
        rounds,
    )
    results |= compared(
        "tumbling", lambda: window(TUMBLING).aggregate(Count(), function=WithKey()), ByHand, batch_of(rows), rounds
    )
    print_table(f"Windows, {rows:,} rows of {KEYS} keys", ("what", "measured"), list(results.items()))
    targets = [
        Target("sliding in slices, time of a copy per window", results["sliding: time to the baseline's"], 1.0),
        Target("the same, entries of state", results["sliding: entries of state to the baseline's"], 0.5),
    ]
    save("windows", rows, results, targets)
    return results


if __name__ == "__main__":
    main()
