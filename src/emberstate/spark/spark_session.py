"""The Spark session of a pipeline: makes one with the settings that a pipeline needs, or checks a running one.

Some settings are read when the SparkContext starts and cannot be changed later. `session` makes a session that has
them; `missing_settings` lists what a running one lacks, and `Pipeline` logs it once.

Thread safety: any thread.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from emberstate.errors import InstallationError, StateDeclarationError
from emberstate.spark.java import ensure_java
from emberstate.spark.packages import PACKAGES, refuse_running, unresolved, with_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
_REDUCE_LOCALITY: Final = "spark.shuffle.reduceLocality.enabled"
_LOCALITY_WAIT: Final = "spark.locality.wait.process"
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_PYTHON_MEMORY: Final = "spark.executor.pyspark.memory"

#: The Spark settings that `session` makes.
SETTINGS: Final = {_SOCKETS: "true", _REDUCE_LOCALITY: "false", _LOCALITY_WAIT: "30s"}
#: With less, a task that finds its executor busy for a moment goes elsewhere.
_LEAST_WAIT_SECONDS: Final = 10

_lock = threading.Lock()
_tokens: dict[str, str] = {}
#: By session: how many threads have turned adaptive execution off, and the setting before.
_plain: dict[str, tuple[int, str]] = {}

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"

#: Before it, rows cannot be sent to a slot by its number.
OLDEST_SPARK: Final = (4, 1)

#: Why Spark Connect is rejected, and what to do.
NO_CONNECT: Final = (
    "a pipeline runs in the driver's own process and cannot be used through Spark Connect. Make a classic session: "
    "unset SPARK_REMOTE, leave out .remote(…), and use emberstate.spark.session(name, master=…) or spark-submit"
)


def refuse_unsupported(given: object = None) -> None:
    """Raise for a version of Spark that is too old, and for a DataFrame or session of Spark Connect."""
    import pyspark

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < OLDEST_SPARK:
        oldest = ".".join(map(str, OLDEST_SPARK))
        what = (
            f"PySpark: expected {oldest} or later, got {pyspark.__version__}, which lacks DataFrame.repartitionById. "
            f"pip install 'pyspark>={oldest}', on every machine"
        )
        raise InstallationError(what, option="pyspark", expected=oldest, found=pyspark.__version__)
    if type(given).__module__.startswith("pyspark.sql.connect"):
        what = f"got a {type(given).__name__} of Spark Connect: {NO_CONNECT}"
        raise StateDeclarationError(what, found="Spark Connect")


def is_local(spark: SparkSession) -> bool:
    """Whether the driver is the only executor."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def driver_path(spark: SparkSession) -> tuple[str, ...]:
    """The driver's `sys.path`, for workers and slots on its machine; empty on a cluster, whose machines differ."""
    return tuple(str(Path(entry).absolute()) for entry in sys.path) if is_local(spark) else ()


def session(
    name: str,
    *,
    master: str | None = None,
    settings: dict[str, str] | None = None,
    packages: Sequence[str] = (),
    jars: Sequence[str | Path] = (),
) -> SparkSession:
    """Make a Spark session with the settings that a pipeline needs.

        spark = session("cards", master="local[4]", packages=["kafka"], settings={"spark.sql.shuffle.partitions": "8"})

    `settings` are added to `SETTINGS`, and override them. Without `master`, that of spark-submit or the environment
    counts. Executors use the driver's Python, unless PYSPARK_PYTHON names another. A Java is found as by `ensure_java`.
    If this process has a session already, it is returned as it is: see `missing_settings`.

    Spark fetches `packages` from Maven Central: "kafka" and "avro" are its own connectors, in the version of this
    Spark, and others are Maven coordinates, "group:artifact:version". `jars` are files. Both must be given where the
    process makes its first session; later they raise `LifecycleError`.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if os.environ.get("SPARK_REMOTE"):
        what = f"SPARK_REMOTE is set, which asks for Spark Connect: {NO_CONNECT}"
        raise StateDeclarationError(what, option="SPARK_REMOTE", found="Spark Connect")
    refuse_unsupported()
    given = with_jars({**SETTINGS, **(settings or {})}, packages, jars)
    refuse_running(given)
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise a Python that may lack this library
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in given.items():
        builder = builder.config(key, value)
    try:
        made = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if PACKAGES in given and error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise unresolved(given) from error
        raise
    refuse_unsupported(made)
    return made


def missing_settings(spark: SparkSession) -> list[str]:
    """The settings that a running session lacks, one line each. Without them results are right, but batches slower."""
    conf = spark.sparkContext.getConf()
    lacking = []
    if conf.get(_SOCKETS) != "true":
        lacking.append(
            f"{_SOCKETS} is {conf.get(_SOCKETS) or 'not set'}: with true, small batches take 30 to 40 ms less"
        )
    if not is_local(spark):
        if conf.get(_REDUCE_LOCALITY) != "false":
            lacking.append(
                f"{_REDUCE_LOCALITY} is {conf.get(_REDUCE_LOCALITY) or 'not set'}: with false, tasks go to the "
                f"executor that has their slot, else state is restored again and again"
            )
        general = conf.get("spark.locality.wait", "3s")
        wait = spark.sparkContext._jsc.sc().conf().getTimeAsSeconds(_LOCALITY_WAIT, general)
        if wait < _LEAST_WAIT_SECONDS:
            lacking.append(
                f"{_LOCALITY_WAIT} is {conf.get(_LOCALITY_WAIT) or general}: with {SETTINGS[_LOCALITY_WAIT]}, tasks "
                f"wait for the executor that has their slot"
            )
        if conf.get(_DYNAMIC, "false") == "true":
            lacking.append(
                f"{_DYNAMIC} is true: an executor that is given up takes its slots with it, and their state is "
                f"restored elsewhere; with false, executors stay"
            )
    memory = conf.get(_PYTHON_MEMORY)
    if memory is not None:
        lacking.append(
            f"{_PYTHON_MEMORY} is {memory}: slots inherit this limit; leave it unset and give the executors "
            f"spark.executor.memoryOverhead instead"
        )
    return lacking


def application_token(spark: SparkSession) -> str:
    """The secret of an application's slots: the same for all starts of all pipelines in it."""
    with _lock:
        return _tokens.setdefault(spark.sparkContext.applicationId or "", secrets.token_hex(16))


@contextlib.contextmanager
def plain_execution(spark: SparkSession) -> Iterator[None]:
    """Turn adaptive execution off: it would skip the tasks of an empty batch, and costs time in small ones.

    Several threads of one session may be inside; the last to leave restores the setting.
    """
    ident: str = spark._jsparkSession.sessionUUID()
    conf = spark.conf
    with _lock:
        users, before = _plain.get(ident, (0, ""))
        if not users:
            before = str(conf.get(_ADAPTIVE))
            if before != "false":
                conf.set(_ADAPTIVE, "false")
        _plain[ident] = users + 1, before
    try:
        yield
    finally:
        with _lock:
            users, before = _plain.pop(ident)
            if users > 1:
                _plain[ident] = users - 1, before
            elif before != "false":
                conf.set(_ADAPTIVE, before)
