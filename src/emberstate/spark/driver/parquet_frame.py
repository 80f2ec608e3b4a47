"""`parquet_frame`: a DataFrame over Parquet outputs that Spark reads by itself, with no Python in its tasks.

One partition per file, in the given order, each file whole: the rows and their order are those of a reader in Python.
`spark.read` promises neither. It splits and packs files by size, and makes every column nullable. So the scan is put
together from its parts: Spark's Parquet reader, and an RDD over one partition per file. What a session may be set to
plays no part: files that are missing or damaged are never skipped, old dates are never shifted, and the checksums of
pages are verified.

Of Spark's internals this needs `FileScanRDD`, `PartitionedFile` and `ParquetFileFormat`. If a version of Spark
differs, a warning says so once, and outputs are read in Python.

Thread safety: the driver's thread.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from emberstate.checkpoint.manifest.model import FileRef
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.sql_text import schema_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("emberstate.spark")

_OPTIONS: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "returning_batch": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
#: The application in which Spark's internals turned out to differ.
_broken: set[str] = set()


def parquet_frame(spark: SparkSession, directory: str, files: Sequence[FileRef], row_type: RowType) -> DataFrame | None:
    """The rows of some files below a directory; None if this version of Spark cannot."""
    application = spark.sparkContext.applicationId or ""
    if application in _broken:
        return None
    try:
        return _frame(spark, [(f"{directory}/{file.path}", file.size) for file in files], row_type)
    except Exception as error:
        _broken.add(application)
        _log.warning(
            "Stored outputs cannot be read by this version of Spark itself (%s: %.300s). Results are right, but "
            "outputs are read in Python, which takes longer.",
            type(error).__name__, error,
        )  # fmt: skip
        return None


def _frame(spark: SparkSession, files: Sequence[tuple[str, int]], row_type: RowType) -> DataFrame:
    from pyspark.sql import DataFrame

    context = spark.sparkContext
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    session: Any = spark._jsparkSession
    java = _classes(context.applicationId or "", jvm)
    options, no_map = jvm.PythonUtils.toScalaMap(_OPTIONS), jvm.PythonUtils.toScalaMap({})
    schema, nothing = java.struct.fromDDL(schema_text(row_type)), jvm.PythonUtils.toSeq([])
    conf = session.sessionState().newHadoopConfWithOptions(options)
    read = java.format().buildReaderWithPartitionValues(
        session, schema, java.struct(), schema, nothing, options, conf
    )
    no_values, no_hosts = java.row.empty(), gateway.new_array(jvm.String, 0)
    partitions = []
    for number, (path, size) in enumerate(files):
        parts = gateway.new_array(java.file, 1)
        place = java.path.fromUri(jvm.java.io.File(path).toURI())
        parts[0] = java.file(no_values, place, 0, size, no_hosts, 0, size, no_map)
        partitions.append(java.partition(number, parts))
    kept = java.options(options)
    rows = java.scan(session, read, jvm.PythonUtils.toSeq(partitions), schema, nothing, no_map, kept)
    return DataFrame(session.internalCreateDataFrame(rows, schema, False), spark)


@functools.lru_cache(maxsize=1)
def _classes(application: str, jvm: Any) -> SimpleNamespace:
    """Spark's classes, once per application: every part of a name is a call into the JVM."""
    return SimpleNamespace(
        struct=jvm.org.apache.spark.sql.types.StructType,
        row=jvm.org.apache.spark.sql.catalyst.InternalRow,
        options=jvm.org.apache.spark.sql.catalyst.FileSourceOptions,
        path=jvm.org.apache.spark.paths.SparkPath,
        format=jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat,
        file=jvm.org.apache.spark.sql.execution.datasources.PartitionedFile,
        partition=jvm.org.apache.spark.sql.execution.datasources.FilePartition,
        scan=jvm.org.apache.spark.sql.execution.datasources.FileScanRDD,
    )
