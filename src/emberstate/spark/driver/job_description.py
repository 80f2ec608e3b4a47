"""`described`: what Spark's pages say of the jobs of a stage or a sink: "cards: stage spending, batch 42".

The group of the jobs stays that of the query, by which Spark cancels them when the query is stopped.

Thread safety: any thread; a description is the thread's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTION: Final = "spark.job.description"


@contextlib.contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs that this thread starts meanwhile; then the description is as before, that of the query."""
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it
