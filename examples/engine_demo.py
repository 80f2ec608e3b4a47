"""A short tour of the state engine: state per key, a snapshot read while processing goes on, a failed batch undone.

Card payments are counted per card and merchant. One batch fails half-way and is rolled back and run again; meanwhile a
reader in another thread goes through a snapshot. In the end everything is compared with a plain computation.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter, defaultdict
from datetime import timedelta

import emberstate as es
from emberstate.heap import CopyOnWriteStateMap

CARDS, MERCHANTS, BATCHES, ROWS = 2_000, 40, 20, 5_000


def main() -> None:
    """Run the tour; raises if the engine and the plain computation disagree."""
    loaded = "interpreted" if str(sys.modules[CopyOnWriteStateMap.__module__].__file__).endswith(".py") else "compiled"
    say(f"Emberstate {es.__version__}, state engine {loaded}")

    backend = es.HeapKeyedStateBackend(es.KeySchema.from_python(str))
    total = backend.get_partitioned_state(es.ValueStateDescriptor("total", int, default=0))
    seen = backend.get_partitioned_state(es.MapStateDescriptor("seen", str, int))
    recent = backend.get_partitioned_state(
        es.ListStateDescriptor("recent", int, ttl=es.TtlConfig(timedelta(seconds=5)))
    )
    rng = random.Random(7)
    payments = [
        [
            (f"card-{rng.randrange(CARDS)}", f"shop-{rng.randrange(MERCHANTS)}", rng.randrange(1, 500))
            for _ in range(ROWS)
        ]
        for _ in range(BATCHES)
    ]

    def process(rows: list[tuple[str, str, int]], fail_after: int | None = None) -> None:
        for number, (card, merchant, amount) in enumerate(rows):
            if number == fail_after:
                raise RuntimeError("a row that cannot be processed")
            backend.set_current_key(card)
            total.update(total.value() + amount)
            seen[merchant] = seen.get(merchant, 0) + 1
            recent.add(amount)

    started = time.perf_counter()
    changed = 0
    reader: threading.Thread | None = None
    for number, rows in enumerate(payments):
        backend.ttl_clock.processing_time = number * 1_000_000
        with backend.snapshot() as before:
            if number == BATCHES // 2:
                try:
                    process(rows, fail_after=ROWS // 2)
                except RuntimeError as error:
                    backend.roll_back(before)
                    say(f"batch {number}: {error}; rolled back, run again")
            process(rows)
            changed += len(backend.changes(before))
        if number == BATCHES // 3:
            reader = threading.Thread(target=read_all, args=(backend.snapshot(), number))
            reader.start()
    seconds = time.perf_counter() - started
    if reader is not None:
        reader.join()
    say(
        f"{BATCHES * ROWS:,} rows in {BATCHES} batches, {seconds:.2f} s; {changed:,} changed entries listed for commits"
    )

    expected_total: Counter[str] = Counter()
    expected_seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for rows in payments:
        for card, merchant, amount in rows:
            expected_total[card] += amount
            expected_seen[card][merchant] += 1
    for card in expected_total:
        backend.set_current_key(card)
        assert total.value() == expected_total[card], card
        assert dict(seen) == expected_seen[card], card
    backend.check_invariants()
    say(f"verified: {len(expected_total):,} cards agree with a plain computation of the same rows")
    say("look next at README.md, docs/decisions/ and `make bench`")


def read_all(snapshot: object, number: int) -> None:
    """Read a whole snapshot while the owner goes on, then release it."""
    with snapshot as frozen:  # type: ignore[attr-defined]
        entries = sum(1 for group in range(128) for _ in frozen.entries("total", group))
    say(f"another thread read {entries:,} entries as they were after batch {number}, while processing went on")


def say(text: str) -> None:
    """Print a line of the tour."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
