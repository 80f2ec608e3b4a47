"""Single operations of `CopyOnWriteStateMap` against a dict, at a million entries, timed from a Python loop."""

from __future__ import annotations

import random
from typing import Any

from benchmarks.measure import SEED, Target, print_table, save, side_by_side
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.value_kind import IMMUTABLE

ENTRIES = 1_000_000
CHUNK = 100_000
ROUNDS = 9
NAMESPACE = "ns"

LIMITS = {"get": 1.5, "update": 1.5, "get then put": 1.5, "insert": 2.0, "first touch under a snapshot": 3.0}


def main() -> None:
    """Run, print, save."""
    rows: list[tuple[Any, ...]] = []
    worst: dict[str, float] = {}
    for label, make in (("int", lambda i: i * 7919 + 1), ("str", lambda i: f"key-{i:07d}")):
        keys = [make(i) for i in range(ENTRIES)]
        random.Random(SEED).shuffle(keys)
        for operation, mine, plain, ratio, against_pairs in _operations(keys):
            rows.append((label, operation, mine, plain, ratio, against_pairs))
            worst[operation] = max(worst.get(operation, 0.0), ratio)
    print_table(
        f"CopyOnWriteStateMap at {ENTRIES:,} entries, shuffled keys (ns per operation)",
        ("keys", "operation", "map", "d[key]", "map / d[key]", "map / d[(key, ns)]"),
        rows,
    )
    targets = [
        Target(f"{operation}, against plain d[key]", worst[operation], limit) for operation, limit in LIMITS.items()
    ]
    results = [
        dict(zip(("keys", "operation", "map_ns", "dict_ns", "ratio", "ratio_to_pairs"), row, strict=True))
        for row in rows
    ]
    save("state-map-operations", ROUNDS, {"operations": results}, targets)


def _operations(keys: list[Any]) -> list[tuple[str, float, float, float, float]]:
    """(operation, ns, ns of d[key], ratio to d[key], ratio to d[(key, ns)]) for each operation."""
    states = CopyOnWriteStateMap(IMMUTABLE)
    for key in keys:
        states.put(key, NAMESPACE, 1)
    plain = dict.fromkeys(keys, 1)
    pairs = [(key, NAMESPACE) for key in keys]
    paired = dict.fromkeys(pairs, 1)
    picks = list(range(len(keys)))
    random.Random(SEED + 1).shuffle(picks)
    chunks = [[keys[i] for i in picks[n * CHUNK : (n + 1) * CHUNK]] for n in range(ROUNDS)]
    pair_chunks = [[pairs[i] for i in picks[n * CHUNK : (n + 1) * CHUNK]] for n in range(ROUNDS)]
    get, put = states.get, states.put

    def map_get(n: int) -> None:
        for key in chunks[n]:
            get(key, NAMESPACE)

    def dict_get(n: int) -> None:
        for key in chunks[n]:
            plain[key]

    def pair_get(n: int) -> None:
        for pair in pair_chunks[n]:
            paired[pair]

    def map_update(n: int) -> None:
        for key in chunks[n]:
            put(key, NAMESPACE, n)

    def dict_update(n: int) -> None:
        for key in chunks[n]:
            plain[key] = n

    def pair_update(n: int) -> None:
        for pair in pair_chunks[n]:
            paired[pair] = n

    def map_get_put(n: int) -> None:
        for key in chunks[n]:
            put(key, NAMESPACE, get(key, NAMESPACE) + 1)

    def dict_get_put(n: int) -> None:
        for key in chunks[n]:
            plain[key] = plain[key] + 1

    def pair_get_put(n: int) -> None:
        for pair in pair_chunks[n]:
            paired[pair] = paired[pair] + 1

    def map_insert(n: int) -> Any:
        fresh = CopyOnWriteStateMap(IMMUTABLE)
        fresh_put = fresh.put
        for key in keys:
            fresh_put(key, NAMESPACE, 1)
        return fresh

    def dict_insert(n: int) -> Any:
        fresh = {}
        for key in keys:
            fresh[key] = 1
        return fresh

    def pair_insert(n: int) -> Any:
        fresh = {}
        for pair in pairs:
            fresh[pair] = 1
        return fresh

    results = []
    for name, mine, theirs, pairwise, count, rounds in (
        ("get", map_get, dict_get, pair_get, CHUNK, ROUNDS),
        ("update", map_update, dict_update, pair_update, CHUNK, ROUNDS),
        ("get then put", map_get_put, dict_get_put, pair_get_put, CHUNK, ROUNDS),
        ("insert", map_insert, dict_insert, pair_insert, len(keys), 3),
    ):
        seconds, plain_seconds, ratio = side_by_side(mine, theirs, rounds)
        _, _, pair_ratio = side_by_side(mine, pairwise, rounds)
        results.append((name, seconds / count * 1e9, plain_seconds / count * 1e9, ratio, pair_ratio))
    with states.snapshot():
        seconds, plain_seconds, ratio = side_by_side(map_update, dict_update, ROUNDS)
    with states.snapshot():
        _, _, pair_ratio = side_by_side(map_update, pair_update, ROUNDS)
    results.append(
        (
            "first touch under a snapshot",
            seconds / CHUNK * 1e9,
            plain_seconds / CHUNK * 1e9,
            ratio,
            pair_ratio,
        )
    )
    return results


if __name__ == "__main__":
    main()
