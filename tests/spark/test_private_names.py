"""The names of Spark's inside that the library uses: another version of Spark may change them without a word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pyspark
import pytest
from pyspark.sql.udf import UserDefinedFunction

from emberstate.errors import InstallationError
from emberstate.spark import session
from emberstate.spark.driver.input_partitions import _PARTITIONING
from tests.raising import raising

pytestmark = pytest.mark.spark

SOURCE = Path(__file__).parents[2] / "src" / "emberstate" / "spark"

#: Class of the JVM → its methods that are called.
METHODS: Final = {
    "org.apache.spark.SparkContext": ("conf", "getExecutorIds", "makeRDD", "statusStore"),
    "org.apache.spark.api.python.PythonUtils": ("toScalaMap", "toSeq"),
    "org.apache.spark.paths.SparkPath": ("fromUri",),
    "org.apache.spark.sql.catalyst.FileSourceOptions": (),
    "org.apache.spark.sql.catalyst.InternalRow": ("empty",),
    "org.apache.spark.sql.catalyst.expressions.GenericInternalRow": (),
    "org.apache.spark.sql.catalyst.plans.physical.HashPartitioning": (),
    "org.apache.spark.sql.api.python.PythonSQLUtils": ("readArrowStreamFromFile", "toDataFrame"),
    "org.apache.spark.sql.classic.Dataset": (
        "groupBy", "mapInArrow", "ofRows", "queryExecution", "repartitionById", "selectExpr", "sortWithinPartitions",
    ),
    "org.apache.spark.sql.classic.SparkSession": (
        "internalCreateDataFrame", "sessionState", "sessionUUID", "sharedState",
    ),
    "org.apache.spark.sql.execution.datasources.FilePartition": (),
    "org.apache.spark.sql.execution.datasources.FileScanRDD": (),
    "org.apache.spark.sql.execution.datasources.PartitionedFile": (),
    "org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation": ("startOffset",),
    "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat": ("buildReaderWithPartitionValues",),
    "org.apache.spark.sql.execution.LogicalRDD": (
        "makeCopy", "output", "productArity", "productElement", "productIterator", "productPrefix", "rdd",
    ),
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction": ("apply",),
    "org.apache.spark.sql.execution.QueryExecution": ("logical", "sparkPlan", "toRdd"),
    "org.apache.spark.sql.execution.SparkPlan": ("children",),
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator": (),
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": (
        "id", "lastExecution", "offsetLog", "runId", "sparkSessionForStream",
    ),
    "org.apache.spark.sql.internal.SessionState": ("newHadoopConf", "newHadoopConfWithOptions"),
    "org.apache.spark.sql.internal.SharedState": ("activeStreamingQueries",),
    "org.apache.spark.sql.types.StructType": ("fromDDL",),
    "org.apache.spark.status.AppStatusStore": ("executorList",),
    "org.apache.spark.status.api.v1.TaskStatus": ("valueOf",),
}  # fmt: skip
#: Where a plan over rows has what the library replaces in it.
PARTS: Final = {1: "rdd", _PARTITIONING: "outputPartitioning"}
#: Attributes of Python objects.
ATTRIBUTES: Final = {
    "Column": ("_jc",),
    "SparkContext": ("_gateway", "_jsc", "_jvm", "_serialize_to_jvm", "_temp_dir"),
    "SparkSession": ("_jsparkSession", "_jvm"),
    "DataFrame": ("_jdf", "repartitionById"),
    "UserDefinedFunction": ("_judf",),
}


def test_private_names_are_there(spark: Any) -> None:
    """Catches: a version of Spark in which something that we use has another name or place; says what."""
    jvm = spark.sparkContext._jvm
    missing = []
    for name, methods in METHODS.items():
        try:
            loaded = jvm.org.apache.spark.util.Utils.classForName(name, False, False)
        except Exception:
            missing.append(name)
            continue
        there = {method.getName() for method in loaded.getMethods()}
        missing += [f"{name}.{method}" for method in methods if method not in there]
    frame = spark.range(1)
    function = UserDefinedFunction(str, "string")
    objects = {
        "Column": frame.id, "SparkContext": spark.sparkContext, "SparkSession": spark, "DataFrame": frame,
        "UserDefinedFunction": function,
    }  # fmt: skip
    for kind, names in ATTRIBUTES.items():
        missing += [f"{kind}.{name}" for name in names if not hasattr(objects[kind], name)]
    plan = frame.localCheckpoint(eager=False)._jdf.queryExecution().logical()
    missing += [f"LogicalRDD: {name} at {at}" for at, name in PARTS.items() if plan.productElementName(at) != name]

    assert missing == [], f"PySpark {pyspark.__version__}"


def test_the_list_is_that_of_the_source() -> None:
    """Catches: a private name that the library begins to use, and that no test watches."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    classes = {re.sub(r"\.[a-z]\w*$", "", name) for name in re.findall(r"\borg\.apache\.spark[\w.]+", text)}
    attributes = set(re.findall(r"\.(_j(?:vm|df|sc|c|udf|sparkSession)|_gateway|_serialize_to_jvm|_temp_dir)\b", text))

    assert classes and classes <= METHODS.keys()
    assert attributes == {name for names in ATTRIBUTES.values() for name in names if name.startswith("_")}


def test_an_old_spark_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: Spark 4.0, which lacks `repartitionById`, refused only in the middle of the first batch."""
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")

    with raising(InstallationError, option="pyspark", expected="4.1", found="4.0.5"):
        session("old")
