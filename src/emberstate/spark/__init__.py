"""Keyed state in Spark pipelines. Start with `Pipeline`.

`plan` describes a pipeline as the user declared it; `driver` runs every micro-batch as one transaction; `slot` streams
the rows of a slot to a process of its own beside the executor, which keeps the slot's state from batch to batch;
`tables` reads the state of a checkpoint as a table, and writes a savepoint from a DataFrame.

Importing this package does not import pyspark, so slots and workers start fast.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.spark.java import ensure_java
    from emberstate.spark.pipeline import Pipeline
    from emberstate.spark.plan.windowed_stage import AllWindowedStage, WindowedStage
    from emberstate.spark.progress import Progress
    from emberstate.spark.run_result import RunResult
    from emberstate.spark.spark_session import SETTINGS, missing_settings, session
    from emberstate.spark.tables.bootstrap import bootstrap_savepoint
    from emberstate.spark.tables.source import register_tables

__all__ = [
    "SETTINGS",
    "AllWindowedStage",
    "Pipeline",
    "Progress",
    "RunResult",
    "WindowedStage",
    "bootstrap_savepoint",
    "ensure_java",
    "missing_settings",
    "register_tables",
    "session",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "java": ["ensure_java"],
            "pipeline": ["Pipeline"],
            "plan.windowed_stage": ["AllWindowedStage", "WindowedStage"],
            "progress": ["Progress"],
            "run_result": ["RunResult"],
            "spark_session": ["SETTINGS", "missing_settings", "session"],
            "tables.bootstrap": ["bootstrap_savepoint"],
            "tables.source": ["register_tables"],
        },
    )
