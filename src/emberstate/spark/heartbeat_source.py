"""A streaming source of ticks: it has no rows, but an offset that advances, so that a stream without data has batches.

Spark starts no batch unless a source has advanced. `Pipeline.start` adds this source to the input (`heartbeat.Ticks`).
It advances

- whenever a heartbeat has passed, if there is one;
- while what is available now is read (`trigger={"availableNow": True}`): at the start, if a heartbeat has passed since
  the last time, and then as long as the driver asks for one more batch, by a file.

Thread safety: Spark's own process for streaming sources, on the driver's host.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _AvailableNow
except ImportError:  # Spark 4.1
    _AvailableNow = object  # type: ignore[misc, assignment]

HEARTBEAT_FORMAT: Final = "emberstate-heartbeat"
#: The suffix of a second file of the driver, which exists until Spark asks for what is available now.
UNASKED: Final = ".unasked"
#: Whether this version of Spark lets a Python source read what is available now.
CAN_CLOSE: Final = _AvailableNow is not object


class HeartbeatSource(DataSource):
    """Options: `milliseconds`, the heartbeat, 0 for none; `wanted`, the file by which the driver asks for a tick."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return HEARTBEAT_FORMAT

    def schema(self) -> str:
        """One column, of no meaning."""
        return "tick boolean"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """The ticks."""
        return _Ticks(int(self.options["milliseconds"]), Path(self.options["wanted"]))


class _Ticks(DataSourceStreamReader, _AvailableNow):
    """The offset is the time of a beat, in milliseconds since 1970; ticks that the driver wants add one to it."""

    def __init__(self, milliseconds: int, wanted: Path) -> None:
        self._milliseconds = milliseconds
        self._wanted = wanted
        self._available: int | None = None  # the last beat, if what is available now is read

    def initialOffset(self) -> dict[str, int]:
        """The start of a new query; with a heartbeat, a tick follows at once."""
        return {"beat": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """From here on only the driver's file adds ticks."""
        self._available = self._beat()
        self._wanted.with_suffix(UNASKED).unlink(missing_ok=True)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        """The last beat, or one tick more than the last batch had."""
        before = 0 if start is None else start["beat"]
        if self._available is None:
            return {"beat": max(before, self._beat())}
        return {"beat": max(before, self._available) + self._wanted.exists()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """None: there are no rows."""
        return []

    def read(self, partition: InputPartition) -> Any:
        """Nothing."""
        return iter(())

    def _beat(self) -> int:
        if not self._milliseconds:
            return 0
        now = time.time_ns() // 1_000_000
        return now - now % self._milliseconds
