"""A streaming source of ticks: one row whenever a heartbeat has passed, so that a stream without data has batches.

Spark starts no batch without new data. `Pipeline.start(…, heartbeat=…)` adds this source to the input; its rows reach
no function, but the batch that they bring reaches every slot.

Thread safety: Spark's own process for streaming sources.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

HEARTBEAT_FORMAT: Final = "emberstate-heartbeat"


class HeartbeatSource(DataSource):
    """`spark.readStream.format("emberstate-heartbeat").option("milliseconds", 1000)`."""

    @classmethod
    def name(cls) -> str:
        """As `format` knows it."""
        return HEARTBEAT_FORMAT

    def schema(self) -> str:
        """One column that says nothing."""
        return "tick boolean"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The ticks."""
        return _Ticks(int(self.options["milliseconds"]))


class _Ticks(DataSourceStreamReader):
    """The offset is the number of heartbeats since 1970."""

    def __init__(self, milliseconds: int) -> None:
        self._milliseconds = milliseconds

    def initialOffset(self) -> dict[str, int]:
        """Where a new query starts: with a tick to come."""
        return {"beat": self._now() - 1}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """How many have passed."""
        return {"beat": self._now()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One, whatever the number of ticks."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bool]]:
        """One tick."""
        yield (True,)

    def _now(self) -> int:
        return time.time_ns() // 1_000_000 // self._milliseconds
