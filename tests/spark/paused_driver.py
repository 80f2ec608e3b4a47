"""A driver that is paused in its sink: `python -m tests.spark.paused_driver ROOT SINK [BATCH]`.

It runs a job over the input below ROOT until all of it is through. Its output is so large that the sink reads the
stored files. In the sink of BATCH it says so and waits, to be stopped there, until it may go on. SINK is one that
overwrites while the job retains enough commits, or one that renames while it does not: `docs/how-to/sinks.md`.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import emberstate as es
from tests.spark.spark_session import local_session
from tests.spark.streams import Stream


class Wide(es.KeyedProcessFunction):
    """Gives rows that do not compress."""

    def process_element(self, row: Any, ctx: Any) -> Iterator[Any]:
        yield row.key, row.value, random.Random(row.value).randbytes(2000).hex()


def entered(root: Path) -> Path:
    """Is there when the driver waits in its sink."""
    return root / "entered"


def gate(root: Path) -> Path:
    """Is there as long as it has to wait."""
    return root / "gate"


#: The commits that a job with each sink retains.
RETAINED = {"overwrite": 3, "rename": 1}


def main(root: Path, kind: str, paused: int | None) -> None:
    """Run the job."""
    spark = local_session("paused driver", Path(os.environ["TMPDIR"]))

    def sink(df: Any, batch: int) -> None:
        if batch == paused:
            entered(root).touch()
            while gate(root).exists():
                time.sleep(0.01)
        target, aside = root / "out" / f"batch={batch}", root / "out" / f"_{batch}-{os.getpid()}"
        if kind == "overwrite":
            df.write.mode("overwrite").json(str(target))
            return
        df.write.json(str(aside))
        try:
            aside.rename(target)
        except OSError:
            shutil.rmtree(aside)

    stream = Stream(spark, root)
    stage = stream.pipeline(retained=RETAINED[kind]).key_by("key")
    stream.drain(stage.process("wide", Wide(), "key string, value int, wide string").sink(sink))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else None)
