"""A driver of some jobs: `python -m benchmarks.nexmark.driver FILES FOLDER QUERIES PARALLELISM LAST`.

When all of them are in the sink of batch LAST, each with the rows of the batch written and none noted as done by Spark,
it kills itself. With -1 it runs to the end. The folder of a job is that of its query's name.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.nexmark.job import Job, local_session
from benchmarks.nexmark.queries import QUERIES


def main(files: str, folder: str, queries: str, parallelism: str, last: str) -> None:
    """Run the jobs, or die."""
    names = queries.split(",")
    together = threading.Barrier(len(names), action=lambda: os.kill(os.getpid(), signal.SIGKILL))

    def run(name: str, begun: threading.Event) -> None:
        def after_batch(batch: int) -> None:
            begun.set()
            if batch == int(last):
                together.wait()

        try:
            Job(spark, QUERIES[name], Path(files), Path(folder) / name, int(parallelism), after_batch).emberstate()
        except BaseException:
            together.abort()  # the others would wait for it
            raise
        finally:
            begun.set()

    spark = local_session()
    with ThreadPoolExecutor(len(names)) as threads:
        started = []
        for name in names:  # one after the other: Spark gives a source in Python ten seconds to start
            begun = threading.Event()
            started.append(threads.submit(run, name, begun))
            begun.wait()
        for done in started:
            done.result()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
