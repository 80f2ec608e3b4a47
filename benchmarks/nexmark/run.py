"""NEXMark: exact answers, also through kills, and throughput beside Spark's own operators.

`python -m benchmarks.nexmark.run [--events N] [--queries q5,q7] [--kill] [--rescale] [--record]`

Every query runs as a pipeline over the same files, a file per batch, and its rows are compared with DuckDB's. Then, if
Spark's own operators can express it, they run over the same files, with both state stores, in the same session. Each
runs once over a smaller stream before it is measured. The stream is 100 seconds of event time, however many events.

With `--kill` a slot is killed after most batches; with `--rescale` the driver is killed twice, and each next one has
another parallelism. What comes out must be the same. `--record` saves the results for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import SEED, print_table, save
from benchmarks.nexmark import kills
from benchmarks.nexmark.generator import Config, write_files
from benchmarks.nexmark.job import SPARK_STORES, Job, Measured, local_session
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.queries.query import Query

SECONDS = 100
BATCHES, COLD = 10, 2
#: Queries that share a driver which is killed.
TOGETHER = 4
OURS = "emberstate"


class Runs:
    """Runs of queries over one stream, in one session."""

    def __init__(self, root: Path, events: int) -> None:
        self.root, self.events = root, events
        self.files, self.few = root / "events", root / "fewer"
        config = Config(seed=SEED, rate=events / SECONDS)
        write_files(self.files, config, events, BATCHES)
        write_files(self.few, Config(seed=SEED + 1, rate=config.rate), events // 4, BATCHES // 4)
        self.oracle = Oracle(self.files)
        self.spark = local_session()

    def throughput(self, query: Query) -> dict[str, Any]:
        """Events per second of every contender, and what is wrong with their rows."""
        found: dict[str, Any] = {}
        for contender in (OURS, *(() if query.not_in_spark else SPARK_STORES)):
            self._measure(query, contender, self.few)
            measured, wrong = self._measure(query, contender, self.files)
            warm = measured.seconds[COLD:]
            found[contender] = {
                "events_per_second": self.events / BATCHES * len(warm) / sum(warm),
                "seconds": measured.seconds,
                "wrong": wrong,
            }
        return found

    def with_kills(self, query: Query, longest_delay: float) -> dict[str, Any]:
        """Kills of slots, and what is wrong with the rows."""
        name = f"{query.name}-killed"
        killer = kills.SlotKiller(self.root / name, SEED, longest_delay, BATCHES - 1)
        job = self._job(query, self.files, name, killer.after_batch)
        job.emberstate()
        return self._judged(query, job, killer.kills)

    def with_rescales(self, queries: Sequence[Query]) -> dict[str, dict[str, Any]]:
        """Kills of drivers that run some queries together, and what is wrong with the rows of each."""
        folder = self.root / "rescaled"
        killed = kills.run_killed(self.files, folder, [query.name for query in queries], BATCHES)
        jobs = {query: Job(self.spark, query, self.files, folder / query.name) for query in queries}
        return {query.name: self._judged(query, job, killed) for query, job in jobs.items()}

    def _judged(self, query: Query, job: Job, killed: int) -> dict[str, Any]:
        wrong = self.oracle.differences(query, job.output)
        shutil.rmtree(job.folder, ignore_errors=True)  # its slots may still write
        return {"kills": killed, "wrong": wrong}

    def _job(self, query: Query, files: Path, name: str, after_batch: Callable[[int], None]) -> Job:
        return Job(self.spark, query, files, self.root / name, after_batch=after_batch)

    def _measure(self, query: Query, contender: str, files: Path) -> tuple[Measured, list[str]]:
        job = self._job(query, files, f"{query.name}-{contender}", lambda batch: None)
        measured = job.emberstate() if contender == OURS else job.in_spark(contender)
        wrong: list[str] = []
        if files == self.files and contender == OURS:
            wrong = self.oracle.differences(query, job.output)
        elif files == self.files and query.spark_is_exact:
            wrong = self.oracle.unexpected(query, job.output)
        shutil.rmtree(job.folder, ignore_errors=True)  # its slots may still write
        return measured, wrong


def main(arguments: list[str]) -> int:
    """Run what the arguments say; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--queries", default=",".join(QUERIES), help="such as q5,q7")
    parser.add_argument("--kill", action="store_true", help="again, with slots killed")
    parser.add_argument("--rescale", action="store_true", help="again, with drivers killed, at other parallelisms")
    parser.add_argument("--record", action="store_true", help="save the results")
    options = parser.parse_args(arguments)
    names = options.queries.split(",")
    if unknown := sorted(set(names) - set(QUERIES)):
        parser.error(f"no query {unknown}: there are {', '.join(QUERIES)}")
    results: dict[str, Any] = {}
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), options.events)
        for name in names:
            query = QUERIES[name]
            variant = " ".join((type(query).__doc__ or "").split())
            found: dict[str, Any] = {
                "title": variant.partition(":")[0].partition(",")[0],
                "variant": variant,
                "not_in_spark": query.not_in_spark,
                "rows": runs.oracle.rows(query),
                "contenders": runs.throughput(query),
            }
            if options.kill:
                found["killed"] = runs.with_kills(query, max(found["contenders"][OURS]["seconds"][COLD:]))
            results[name] = found
            print(f"{name}: {_line(found)}", flush=True)
        for start in range(0, len(names) if options.rescale else 0, TOGETHER):
            for name, judged in runs.with_rescales([QUERIES[name] for name in names[start : start + TOGETHER]]).items():
                results[name]["rescaled"] = judged
                print(f"{name}: {_line(results[name])}", flush=True)
        runs.spark.stop()
    load.append(os.getloadavg()[0])
    _print(results, options.events)
    wrong = [f"{name}, {what}: {one}" for name, found in results.items() for what, one in _wrong(found)]
    for line in wrong:
        print(f"WRONG {line}")
    if options.record:
        settings = {"events": options.events, "batches": BATCHES, "cold": COLD, "cores": os.cpu_count(), "load": load}
        save("nexmark", BATCHES, {"settings": settings, "queries": results}, [])
    return 1 if wrong else 0


def _wrong(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Everything that is wrong, with where."""
    runs = {**found["contenders"], **{name: found[name] for name in ("killed", "rescaled") if name in found}}
    return [(name, wrong) for name, one in runs.items() for wrong in one["wrong"]]


def _line(found: dict[str, Any]) -> str:
    rates = ", ".join(f"{name} {one['events_per_second']:,.0f}/s" for name, one in found["contenders"].items())
    killed = "".join(f", {name}: {found[name]['kills']} kills" for name in ("killed", "rescaled") if name in found)
    return f"{rates}{killed}, {'WRONG' if _wrong(found) else 'exact'}"


def _print(results: dict[str, Any], events: int) -> None:
    rows = []
    for name, found in results.items():
        rates = [found["contenders"].get(one, {}).get("events_per_second") for one in (OURS, *SPARK_STORES)]
        cells = ["-" if rate is None else f"{rate:,.0f}" for rate in rates]
        rows.append([name, found["rows"], *cells, "-" if rates[1] is None else rates[0] / rates[1]])
    print_table(f"{events} events, events/s", ["query", "rows", OURS, *SPARK_STORES, "ours to spark"], rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
