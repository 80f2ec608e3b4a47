"""Streams out of files, one batch per file, and sinks that remember."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Unpack

import pytest
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.errors import EmberstateError, Place
from tests.raising import raising
from tests.spark.spark_session import wait_for

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVENTS = "key string, ts timestamp, value bigint"


def at(seconds: float) -> datetime:
    """A moment, by its distance from an arbitrary one."""
    return START + timedelta(seconds=seconds)


def rows_of(df: Any) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame; timestamps are aware, as functions see them."""
    aware = [field.dataType.typeName() == "timestamp" for field in df.schema.fields]

    def fixed(row: Any) -> tuple[Any, ...]:
        pairs = zip(aware, row, strict=True)
        return tuple(value.astimezone(UTC) if fix and value is not None else value for fix, value in pairs)

    return [fixed(row) for row in df.collect()]


def wait_in(query: Any, condition: Callable[[], Any], what: str) -> Any:
    """Wait for something that a query does; if it fails, so does the test."""

    def met() -> Any:
        found = condition()
        error = None if found else query.exception()
        if error is not None:
            raise error
        return found

    return wait_for(met, what)


@contextmanager
def query_failing(
    pipeline: es.Pipeline, kind: type[EmberstateError], word: str = "", **place: Unpack[Place]
) -> Iterator[None]:
    """Expect a query to end by an error. Spark's exception says its class, the pipeline's last error has the
    attributes."""
    with pytest.raises(StreamingQueryException, match=kind.__name__):
        yield
    assert pipeline.last_error is not None
    with raising(kind, word, **place):
        raise pipeline.last_error


class Kept:
    """A sink that keeps the rows of every batch, and every delivery of it. Read it from any thread."""

    def __init__(self) -> None:
        self.deliveries: dict[int, list[list[tuple[Any, ...]]]] = {}

    def __call__(self, df: Any, batch: int) -> None:
        rows = rows_of(df)
        self.deliveries = {**self.deliveries, batch: [*self.deliveries.get(batch, []), rows]}

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows once; all deliveries of a batch are the same."""
        found = self.deliveries
        for batch, times in found.items():
            assert all(rows == times[0] for rows in times), f"batch {batch} was not delivered the same again"
        return [row for batch in sorted(found) for row in found[batch][0]]

    @property
    def batches(self) -> list[int]:
        """The batches that came, in order of their first delivery."""
        return list(self.deliveries)


@dataclasses.dataclass
class Stream:
    """A job's places, below one directory."""

    spark: Any
    root: Path
    schema: str = EVENTS
    files: int = 0
    checkpoint_name: str = "query"

    def __post_init__(self) -> None:
        self.input = self.root / "input"
        self.input.mkdir(exist_ok=True)
        self.files = len(list(self.input.iterdir()))

    def add(self, *batches: Iterable[Sequence[Any]]) -> None:
        """Input files, each to be a batch."""
        names = [part.split()[0] for part in self.schema.split(", ")]
        for rows in batches:
            lines = [json.dumps(dict(zip(names, row, strict=True)), default=_plain) + "\n" for row in rows]
            hidden = self.input / f"_{self.files}"
            hidden.write_text("".join(lines), encoding="utf-8")
            moment = START.timestamp() + self.files  # Spark takes them in order of their times
            os.utime(hidden, (moment, moment))
            hidden.rename(self.input / f"{self.files:06}.json")
            self.files += 1

    def read(self) -> Any:
        """The streaming DataFrame, a file per batch."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.input))

    def static(self) -> Any:
        """All of the input as a DataFrame."""
        return self.spark.read.schema(self.schema).json(str(self.input))

    def backend(self, kind: str = "fs") -> Any:
        """A state backend; the same location every time."""
        if kind == "memory":
            return es.MemoryStateBackend()
        if kind == "rocksdb":
            return es.RocksDBStateBackend(self.root / "state", memory="16 MiB")
        return es.FsStateBackend(self.root / "state")

    def pipeline(self, kind: str = "fs", **options: Any) -> es.Pipeline:
        """A pipeline without stages over the backend."""
        return es.Pipeline("job", self.backend(kind), **{"parallelism": 2, **options})

    @property
    def checkpoint(self) -> str:
        """Spark's own."""
        return str(self.root / self.checkpoint_name)

    def start(self, pipeline: es.Pipeline, **options: Any) -> Any:
        """Start the stream."""
        return pipeline.start(self.read(), checkpoint=self.checkpoint, **options)

    def drain(self, pipeline: es.Pipeline) -> None:
        """Run the stream until all of the input is through, a batch per file and no other."""
        writer = self.read().writeStream.foreachBatch(pipeline).option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def finish(self, pipeline: es.Pipeline, **options: Any) -> None:
        """The same, and close what the last rows close."""
        self.start(pipeline, trigger={"availableNow": True}, **options).awaitTermination()


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(value)
