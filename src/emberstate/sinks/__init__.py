"""Where a pipeline's output goes: `pipeline.sink(es.sinks.parquet("/data/totals"))`. See docs/how-to/sinks.md.

`interface` says what a sink is and must hold; users write sinks of their own against it.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.sinks.delta_sink import DeltaSink, delta
    from emberstate.sinks.iceberg_sink import IcebergSink, iceberg
    from emberstate.sinks.interface import Delivery, Origin, Sink, Start
    from emberstate.sinks.kafka_sink import KafkaSink, kafka
    from emberstate.sinks.notebook import ConsoleSink, MemorySink, console, memory
    from emberstate.sinks.parquet_sink import ParquetSink, parquet
    from emberstate.sinks.parts import Part
    from emberstate.sinks.postgres_sink import PostgresSink, postgres

__all__ = [
    "ConsoleSink",
    "Delivery",
    "DeltaSink",
    "IcebergSink",
    "KafkaSink",
    "MemorySink",
    "Origin",
    "ParquetSink",
    "Part",
    "PostgresSink",
    "Sink",
    "Start",
    "console",
    "delta",
    "iceberg",
    "kafka",
    "memory",
    "parquet",
    "postgres",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "delta_sink": ["DeltaSink", "delta"],
            "iceberg_sink": ["IcebergSink", "iceberg"],
            "interface": ["Delivery", "Origin", "Sink", "Start"],
            "kafka_sink": ["KafkaSink", "kafka"],
            "notebook": ["ConsoleSink", "MemorySink", "console", "memory"],
            "parquet_sink": ["ParquetSink", "parquet"],
            "parts": ["Part"],
            "postgres_sink": ["PostgresSink", "postgres"],
        },
    )
