"""Keyed state in Spark pipelines. `emberstate.Pipeline` is where to begin.

The driver runs every micro-batch as one transaction (`batch_runner`); the rows of a slot are streamed to a process of
its own beside the executor (`slot_process`), which keeps the slot's state from batch to batch. The state of a
checkpoint can be read as a table, and a savepoint be made of a DataFrame (`tables`).

Importing this imports no pyspark: slots and workers start faster without.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emberstate.spark.pipeline import Pipeline
    from emberstate.spark.progress import Progress
    from emberstate.spark.session import missing_settings
    from emberstate.spark.table_bootstrap import bootstrap_savepoint
    from emberstate.spark.tables import register_tables

__all__ = ["Pipeline", "Progress", "bootstrap_savepoint", "missing_settings", "register_tables"]

_LATER = {
    "Pipeline": "pipeline",
    "Progress": "progress",
    "bootstrap_savepoint": "table_bootstrap",
    "missing_settings": "session",
    "register_tables": "tables",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(_import_module(f"{__name__}.{_LATER[name]}"), name)
        return globals()[name]
