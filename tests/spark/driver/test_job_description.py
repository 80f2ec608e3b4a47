"""What Spark's pages say of a pipeline's jobs."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.errors import UserFunctionError
from tests.spark.pipeline_functions import TOTALS, Totals
from tests.spark.streams import EVENTS, Stream, at

pytestmark = pytest.mark.spark


def described(spark: Any) -> set[str]:
    """The descriptions of all jobs so far."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = (jobs.apply(number).description() for number in range(jobs.size()))
    return {one.get() for one in found if one.isDefined()}


def test_jobs_say_whose_they_are(stream: Stream) -> None:
    """Catches: jobs that Spark's pages show as `collect at …`; a description that stays after the batch, or after a
    sink that fails, on jobs that are not the pipeline's."""
    spark = stream.spark
    frame = spark.createDataFrame([("a", at(0), 1)], EVENTS)

    def write(df: Any, batch: int) -> None:
        df.repartition(1).collect()
        if batch == 1:
            raise ValueError("no room")

    pipeline = stream.pipeline("memory").key_by("key").process("totals", Totals(), TOTALS).sink(write)
    context = spark.sparkContext
    context.setJobDescription("of the query")
    try:
        pipeline(frame, 0)
        assert context.getLocalProperty("spark.job.description") == "of the query"
        with pytest.raises(UserFunctionError):
            pipeline(frame, 1)
        assert context.getLocalProperty("spark.job.description") == "of the query"
    finally:
        context.setJobDescription(None)
    ours = {text for text in described(spark) if text.startswith("job: ")}
    assert {f"job: {what} totals, batch {n}" for what in ("stage", "sink of") for n in (0, 1)} <= ours
