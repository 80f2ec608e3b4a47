"""The longest single put while growing to five million entries, against a dict's; and the collector's part in it."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Target, print_table, save
from emberstate.codec import codec_for
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind, ValueKind

ENTRIES = 5_000_000
RUNS = 5
COLLECTED_ENTRIES = 500_000
NAMESPACE = "ns"


@dataclasses.dataclass
class Payment:
    """A value with fields, as users have them."""

    card: str
    amount: float


def main() -> None:
    """Run, print, save."""
    mine = min(_longest(lambda: CopyOnWriteStateMap(IMMUTABLE).put, with_namespace=True) for _ in range(RUNS))
    theirs = min(_longest(lambda: {}.__setitem__, with_namespace=False) for _ in range(RUNS))
    print_table(
        f"Longest put while growing to {ENTRIES:,} entries, smallest of {RUNS} runs (ms)",
        ("map", "dict", "map / dict"),
        [(mine * 1e3, theirs * 1e3, mine / theirs)],
    )
    rows = [
        (label, *_collector(make, kind))
        for label, make, kind in (
            ("int", lambda i: i, IMMUTABLE),
            ("list", lambda i: [i], _kind_of(list[int])),
            ("dict", lambda i: {i: i}, _kind_of(dict[int, int])),
            ("dataclass", lambda i: Payment("card", float(i)), _kind_of(Payment)),
        )
    ]
    print_table(
        f"A full collection with {COLLECTED_ENTRIES:,} entries (ms)",
        ("values", "map", "dict[(key, ns)]", "values alone"),
        rows,
    )
    save(
        "growth-pause",
        RUNS,
        {
            "longest_put_ms": mine * 1e3,
            "longest_dict_put_ms": theirs * 1e3,
            "full_collection_ms": {row[0]: {"map": row[1], "dict": row[2], "values_alone": row[3]} for row in rows},
        },
        [Target("longest put against dict's", mine / theirs, 1 / 20)],
    )


def _kind_of(type_: Any) -> ValueKind:
    codec = codec_for(type_)
    return MutableKind(codec.copy, codec.same)


def _longest(make: Callable[[], Callable[..., Any]], *, with_namespace: bool) -> float:
    """The longest of `ENTRIES` puts into something fresh, in seconds."""
    put = make()
    now = time.perf_counter
    longest = 0.0
    gc.collect()
    gc.disable()
    try:
        if with_namespace:
            for key in range(ENTRIES):
                start = now()
                put(key, NAMESPACE, 1)
                longest = max(longest, now() - start)
        else:
            for key in range(ENTRIES):
                start = now()
                put(key, 1)
                longest = max(longest, now() - start)
    finally:
        gc.enable()
    return longest


def _collector(make: Callable[[int], Any], kind: ValueKind) -> tuple[float, float, float]:
    """Milliseconds of a full collection with the values in a map, in a dict, and in a plain list."""
    gc.collect()
    gc.freeze()
    try:
        states = CopyOnWriteStateMap(kind)
        for key in range(COLLECTED_ENTRIES):
            states.put(key, NAMESPACE, make(key))
        in_map = _collection()
        del states
        in_dict = {(key, NAMESPACE): make(key) for key in range(COLLECTED_ENTRIES)}
        in_plain_dict = _collection()
        in_dict.clear()
        values = [make(key) for key in range(COLLECTED_ENTRIES)]
        alone = _collection()
        del values
    finally:
        gc.unfreeze()
    return in_map, in_plain_dict, alone


def _collection() -> float:
    gc.collect()
    start = time.perf_counter()
    gc.collect()
    return (time.perf_counter() - start) * 1e3


if __name__ == "__main__":
    main()
