"""`memory_frame`: a DataFrame of rows that the driver has in memory.

`spark.createDataFrame` asks Spark for its settings and for the columns every time, in some forty calls into the JVM.
The rows of outputs need little of it: they are Arrow of the types that Spark uses, with timestamps in UTC. What depends
on the columns alone is made once.

Thread safety: the driver's thread.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from emberstate.runtime.rows.arrow_rows import arrow_schema
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.sql_text import schema_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: With it, Spark lays strings out in another way than they are here.
_LARGE_TYPES: Final = "spark.sql.execution.arrow.useLargeVarTypes"
#: The rows of a partition, if there are so many that Spark makes several.
_ROWS: Final = 10_000


def memory_frame(spark: SparkSession, batches: Sequence[pa.RecordBatch], row_type: RowType) -> DataFrame:
    """The rows of some batches, in order."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    schema = arrow_schema(row_type)
    rows = pa.Table.from_batches(batches, schema).to_batches(max_chunksize=_ROWS)
    rows = rows or [pa.RecordBatch.from_pylist([], schema)]  # Spark reads no columns of a stream without a batch
    if spark.conf.get(_LARGE_TYPES, "false") != "false":
        return spark.createDataFrame(pa.Table.from_batches(rows), schema=schema_text(row_type))
    context = spark.sparkContext
    java = _java(context._jvm, row_type)
    stream = context._serialize_to_jvm(rows, ArrowStreamSerializer(), java.read_file, java.server)
    return DataFrame(java.to_frame(stream, java.schema, spark._jsparkSession), spark)


@functools.lru_cache(maxsize=64)
def _java(jvm: Any, row_type: RowType) -> SimpleNamespace:
    """What is the same for all frames of these columns: every part of a name is a call into the JVM."""
    from pyspark.sql.types import StructType

    return SimpleNamespace(
        schema=StructType.fromDDL(schema_text(row_type)).json(),
        read_file=jvm.PythonSQLUtils.readArrowStreamFromFile,
        server=lambda: jvm.ArrowIteratorServer(),
        to_frame=jvm.PythonSQLUtils.toDataFrame,
    )
