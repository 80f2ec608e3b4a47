"""The loop over rows: a running count and a map count, from Arrow to Arrow, against a loop written by hand.

The naive loop is what one writes without a runtime: Arrow to named tuples, a generator per row, two state calls,
tuples to Arrow. It has no event time, no timers, no late rows, and checks no output.

The runtime's own cost per row is the whole, less the user's function with its state calls, which are timed alone:
the same generator, fed with rows that exist already, on the same keys. What is left is Arrow to rows, setting keys and
times, collecting outputs, checking their types, and rows to Arrow.
"""

from __future__ import annotations

import cProfile
import pstats
import random
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.measure import SEED, Target, print_table, save, side_by_side, timed
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeySchema
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.columns import KEY_GROUP_COLUMN
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.state.descriptors import MapStateDescriptor, StateDescriptor, ValueStateDescriptor

ROWS = 200_000
BATCH = 10_000  # what Spark sends at a time
KEYS = 10_000
SCHEMA = "card string, merchant string, amount double, ts timestamp"
KEY_SCHEMA = KeySchema.from_python(str)


class RunningCount(KeyedProcessFunction):
    """Two state calls and one output row per row."""

    count = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        """Count the card."""
        count = self.count.value() + 1
        self.count.update(count)
        yield row.card, count


class MapCount(KeyedProcessFunction):
    """The same by merchant, in a map."""

    seen = map_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> Any:
        """Count the merchant of the card."""
        count = self.seen.get(row.merchant, 0) + 1
        self.seen[row.merchant] = count
        yield row.card, count


JOBS: tuple[tuple[str, type[KeyedProcessFunction], StateDescriptor], ...] = (
    ("running count", RunningCount, ValueStateDescriptor("count", int, default=0)),
    ("map count", MapCount, MapStateDescriptor("seen", str, int)),
)


def batches(rows: int) -> list[pa.RecordBatch]:
    """Rows in order of event time, with their key groups, as a slot gets them."""
    rng = random.Random(SEED)
    group = KEY_SCHEMA.key_grouper(DEFAULT_MAX_PARALLELISM)
    made = []
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        cards = [f"card-{rng.randrange(KEYS):06d}" for _ in range(count)]
        made.append(
            pa.record_batch(
                {
                    "card": cards,
                    "merchant": [f"shop-{rng.randrange(8)}" for _ in range(count)],
                    "amount": [rng.random() for _ in range(count)],
                    "ts": pa.array(range(start, start + count), pa.timestamp("us", "UTC")),
                    KEY_GROUP_COLUMN: pa.array([group(card) for card in cards], pa.int32()),
                }
            )
        )
    return made


def operator_for(function: KeyedProcessFunction, event_time: str | None) -> KeyedOperator:
    """An open operator."""
    columns = SCHEMA if event_time else SCHEMA.removesuffix(", ts timestamp")
    operator = KeyedOperator(
        "count",
        function,
        HeapKeyedStateBackend(KEY_SCHEMA),
        inputs=[KeyedInput(columns, ["card"], event_time=event_time)],
        output="card string, count bigint",
    )
    operator.open()
    return operator


def by_runtime(operator: KeyedOperator, data: list[pa.RecordBatch]) -> Any:
    """One transaction."""
    with operator.snapshot():
        operator.begin(processing_time=0)
        for batch in data:
            operator.process_batch(batch)
        return operator.end().outputs["main"].batches()


Named = namedtuple("Named", ["card", "merchant", "amount"])


def naive_elements(backend: HeapKeyedStateBackend, descriptor: StateDescriptor) -> Callable[[Any], Any]:
    """The function of the naive loop."""
    state = backend.get_partitioned_state(descriptor)
    if descriptor.kind == "value":

        def count(row: Any) -> Any:
            count = state.value() + 1
            state.update(count)
            yield row.card, count

        return count

    def by_merchant(row: Any) -> Any:
        count = state.get(row.merchant, 0) + 1
        state[row.merchant] = count
        yield row.card, count

    return by_merchant


def by_hand(backend: HeapKeyedStateBackend, element: Callable[[Any], Any], data: list[pa.RecordBatch]) -> Any:
    """The naive loop: what one writes first."""
    schema = pa.schema({"card": pa.string(), "count": pa.int64()})
    made = []
    with backend.snapshot():
        for batch in data:
            columns = [batch.column(name).to_pylist() for name in Named._fields]
            out = []
            for row in map(Named._make, zip(*columns, strict=True)):
                backend.set_current_key(row.card)
                for output in element(row):
                    out.append(output)
            cards, counts = zip(*out, strict=True)
            made.append(pa.record_batch([pa.array(cards), pa.array(counts, pa.int64())], schema=schema))
    return made


def function_alone(
    descriptor: StateDescriptor, data: list[pa.RecordBatch]
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The user's generator with its state calls on rows that exist, key by key; and the same without the generator."""
    backend = HeapKeyedStateBackend(KEY_SCHEMA)
    element = naive_elements(backend, descriptor)
    prepared = []
    for batch in data:
        columns = [batch.column(name).to_pylist() for name in Named._fields]
        prepared.append(([*map(Named._make, zip(*columns, strict=True))], batch.column(KEY_GROUP_COLUMN).to_pylist()))
    set_key = backend.context.set_current_key_and_group
    out: list[Any] = []

    def keys_alone() -> None:
        for rows, groups in prepared:
            for row, group in zip(rows, groups, strict=True):
                set_key(row.card, group)

    def everything() -> None:
        with backend.snapshot():
            for rows, groups in prepared:
                out.clear()
                for row, group in zip(rows, groups, strict=True):
                    set_key(row.card, group)
                    out.extend(element(row))

    return everything, keys_alone


def least(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The least seconds of each, taking turns: of a difference of two times, the median would be mostly noise."""
    times = [[timed(function) for function in functions] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def profile(operator: KeyedOperator, data: list[pa.RecordBatch]) -> dict[str, float]:
    """Share of the time by function, the largest first; the profiler makes small functions look larger."""
    profiler = cProfile.Profile()
    profiler.runcall(by_runtime, operator, data)
    found = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = sum(entry[2] for entry in found.values())
    shares = {f"{function}": entry[2] / total for (_, _, function), entry in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1])[:12])


def main(rows: int = ROWS, rounds: int = 15) -> dict[str, Any]:
    """Measure, print and save."""
    data = batches(rows)
    results: dict[str, Any] = {}
    targets = []
    for name, function, descriptor in JOBS:
        backend = HeapKeyedStateBackend(KEY_SCHEMA)
        element = naive_elements(backend, descriptor)
        plain, timed_by_event = operator_for(function(), None), operator_for(function(), "ts")
        ours, naive, ratio = side_by_side(
            lambda _, o=plain: by_runtime(o, data),  # type: ignore[misc]
            lambda _, b=backend, e=element: by_hand(b, e, data),  # type: ignore[misc]
            rounds,
        )
        everything, keys_alone = function_alone(descriptor, data)
        whole, with_times, both, keys = least(
            [
                lambda o=plain: by_runtime(o, data),  # type: ignore[misc]
                lambda o=timed_by_event: by_runtime(o, data),  # type: ignore[misc]
                everything,
                keys_alone,
            ],
            rounds,
        )
        alone = both - keys
        results[name] = {
            "runtime, rows per second": rows / ours,
            "naive loop, rows per second": rows / naive,
            "time of the naive loop": ratio,
            "with event time and its column, rows per second": rows / with_times,
            "function and state alone, ns per row": alone / rows * 1e9,
            "runtime's own, ns per row": (whole - alone) / rows * 1e9,
            "runtime's own with event time, ns per row": (with_times - alone) / rows * 1e9,
            "profile, with event time": profile(timed_by_event, data),
        }
        measured = [(what, value) for what, value in results[name].items() if isinstance(value, float)]
        print_table(f"{name}, {rows:,} rows in batches of {BATCH:,}", ("what", "measured"), measured)
        shares = results[name]["profile, with event time"].items()
        print_table("profile, with event time", ("function", "share"), list(shares))
        targets += [
            Target(f"{name}: time of the naive loop", ratio, 1.0),
            Target(f"{name}: runtime's own cost per row", results[name]["runtime's own, ns per row"] / 1000, 1.0, "µs"),
            Target(
                f"{name}: the same with event time",
                results[name]["runtime's own with event time, ns per row"] / 1000,
                1.0,
                "µs",
            ),
        ]
    save("runtime-loop", rows, results, targets)
    return results


if __name__ == "__main__":
    main()
