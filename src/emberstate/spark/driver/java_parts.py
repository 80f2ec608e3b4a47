"""Parts of plans in the JVM, made once and kept: every item of a list that is handed to Spark is a call of its own.

For texts that are the same in every batch. What is kept belongs to no session.

Thread safety: any thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def selected(frame: DataFrame, texts: Sequence[str]) -> DataFrame:
    """`frame.selectExpr(*texts)`."""
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    return DataFrame(frame._jdf.selectExpr(_texts(spark._jvm, *texts)), spark)


def grouped(frame: DataFrame, by: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """`frame.groupBy(*by).agg(*aggregates)`, of SQL text."""
    from pyspark.sql import DataFrame

    spark = frame.sparkSession
    first, rest = _split_columns(spark._jvm, *aggregates)
    groups = frame._jdf.groupBy(_columns(spark._jvm, *by))
    return DataFrame(groups.agg(first, rest), spark)


@functools.lru_cache(maxsize=256)
def _texts(jvm: Any, *texts: str) -> Any:
    return jvm.PythonUtils.toSeq(list(texts))


@functools.lru_cache(maxsize=256)
def _columns(jvm: Any, *texts: str) -> Any:
    from pyspark.sql import functions as F

    return jvm.PythonUtils.toSeq([F.expr(text)._jc for text in texts])


@functools.lru_cache(maxsize=256)
def _split_columns(jvm: Any, first: str, *rest: str) -> tuple[Any, Any]:
    from pyspark.sql import functions as F

    return F.expr(first)._jc, _columns(jvm, *rest)
