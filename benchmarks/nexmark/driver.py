"""A driver of one job: `python -m benchmarks.nexmark.driver FILES FOLDER QUERY PARALLELISM LAST`.

It kills itself in the sink of batch LAST: after the rows are written, before Spark has noted the batch as done. With -1
it runs to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from benchmarks.nexmark.job import Job, local_session
from benchmarks.nexmark.queries import QUERIES


def main(files: str, folder: str, query: str, parallelism: str, last: str) -> None:
    """Run the job, or die."""

    def after_batch(batch: int) -> None:
        if batch == int(last):
            os.kill(os.getpid(), signal.SIGKILL)

    spark = local_session()
    Job(spark, QUERIES[query], Path(files), Path(folder), int(parallelism), after_batch).emberstate()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
