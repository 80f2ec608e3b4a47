"""Makes golden locations of whole jobs, each stopped half-way; run it once per format version and never again.

    python -m tests.checkpoint.golden.make_jobs

`v1-jobs` has a location for each job of `JOBS` and each backend: timers with states of several kinds, windows, and
aggregates in columns. `expected.json` has what each job emitted in its second half when it was not stopped.
"""

from __future__ import annotations

import json
import tempfile
import unittest.mock
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import emberstate as es
from emberstate.checkpoint.backends import FsStateBackend, RocksDBStateBackend
from emberstate.checkpoint.manifest.envelope import FORMAT_VERSION
from emberstate.testing import Harness

FOLDER: Final = Path(__file__).parent
SCHEMA: Final = "card string, shop string, amount bigint, ts timestamp"
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
BACKENDS: Final[dict[str, Callable[[Path], Any]]] = {"heap": FsStateBackend, "rocksdb": RocksDBStateBackend}
AGGREGATES: Final = {"n": es.count(), "total": es.sum("amount"), "least": es.min("amount"), "mean": es.mean("amount")}


class Visits(es.KeyedProcessFunction):
    """A value, a list, a map with a time to live, and a timer that closes a card's visits."""

    total = es.value_state(int, default=0)
    amounts = es.list_state(int)
    shops = es.map_state(str, int, ttl="30 days")

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, str]]:
        """One payment."""
        self.total.update(self.total.value() + row.amount)
        self.amounts.add(row.amount)
        self.shops[row.shop] = self.shops.get(row.shop, 0) + 1
        ctx.timers.register_event_time("quiet", row.ts + timedelta(minutes=10))
        yield row.card, f"{self.total.value()} {self.shops[row.shop]}"

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[str, str]]:
        """Tell what is there, and forget the amounts."""
        yield timer.key, f"timer {self.total.value()} {list(self.amounts)} {sorted(self.shops.items())}"
        self.amounts.clear()


def timers(backend: Any) -> Harness:
    """States of several kinds, and timers."""
    return Harness(
        Visits(), schema=SCHEMA, key="card", event_time="ts", output="card string, what string", parallelism=2,
        state_backend=backend,
    )  # fmt: skip


def windows(backend: Any) -> Harness:
    """Aggregates in windows, which are open at the stop."""
    window = es.window(es.TumblingEventTimeWindows.of("5 minutes"))
    return Harness.of_aggregates(
        AGGREGATES, schema=SCHEMA, key="card", event_time="ts", window=window, parallelism=2, state_backend=backend
    )


def columns(backend: Any) -> Harness:
    """Running aggregates, which the heap keeps in columns."""
    return Harness.of_aggregates(AGGREGATES, schema=SCHEMA, key="card", parallelism=2, state_backend=backend)


JOBS: Final[dict[str, Callable[[Any], Harness]]] = {"timers": timers, "windows": windows, "columns": columns}


def run(harness: Harness, half: int) -> list[str]:
    """Run the first or second half of the payments; return what came, in an order of its own."""
    for batch in range(half * 3, half * 3 + 3):
        numbers = range(batch * 20, batch * 20 + 20)
        harness.process_batch(
            [(f"card-{n % 7}", f"shop-{n % 3}", n * n % 101, START + timedelta(seconds=17 * n)) for n in numbers]
        )
    return sorted(str(tuple(row)) for row in harness.take())


def main() -> None:
    """Make all golden jobs, and see that both backends agree."""
    folder = FOLDER / f"v{FORMAT_VERSION}-jobs"
    assert not folder.exists(), "golden files are made once"
    expected: dict[str, list[str]] = {}
    for name, make in JOBS.items():
        for kind, backend in BACKENDS.items():
            with make(backend(folder / f"{name}-{kind}")) as harness:
                run(harness, 0)
            with tempfile.TemporaryDirectory() as other, make(backend(Path(other))) as harness:
                run(harness, 0)
                assert expected.setdefault(name, found := run(harness, 1)) == found and found
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with unittest.mock.patch("socket.gethostname", return_value="host-1"):
        main()
