"""The folder of Parquet files: conformance, adoption, owners, permissions, and a paused driver at every point."""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import stat
import sys
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import pytest

import emberstate as es
from emberstate.errors import CorruptionError, SinkError, StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks import Origin, Start
from emberstate.testing import LocalDelivery, check_sink
from tests.raising import raising
from tests.spark.spark_session import wait_for

ORIGIN = Origin("f00d", "cards", "9b1e", "totals", "main")
WORDS = RowType.of("word string, n bigint")


def sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The sink of a target's name."""
    return es.sinks.parquet(root / name)


def partitioned_sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The same by key."""
    return es.sinks.parquet(root / name, partition_by=["key"])


def read(root: Path, name: str) -> list[tuple[Any, ...]]:
    """All rows, as DuckDB reads a plain folder."""
    if not list((root / name).glob("*/**/*.parquet")):
        return []
    found: list[tuple[Any, ...]] = duckdb.execute(
        "select key, value from read_parquet(?)", [f"{root / name}/**/*.parquet"]
    ).fetchall()
    return found


def delivery(root: Path, batch: int, origin: Origin = ORIGIN, **options: Any) -> LocalDelivery:
    """Two parts: a Parquet file and an Arrow stream."""
    rows = [[(f"w{batch}", n) for n in range(3)], [(f"w{batch}", n) for n in range(3, 5)]]
    return LocalDelivery(root / "state", origin, batch, WORDS, rows, **options)


def start(row_type: RowType = WORDS, before: Origin | None = None) -> Start:
    """A start; the sink needs no session."""
    session: Any = None
    return Start(session, "cards", "totals", "main", row_type, before)


def words(folder: Path) -> list[tuple[Any, ...]]:
    """What pandas reads, as a plain folder."""
    found = pd.read_parquet(folder)
    return sorted((str(row.word), int(row.n), int(row.batch)) for row in found.itertuples())


@pytest.mark.long
def test_conformance(tmp_path: Path) -> None:
    """Catches: a batch that is there in part, twice or not at all, whatever dies, fails, pauses or comes again."""
    for name, make in (("plain", sink_of), ("partitioned", partitioned_sink_of)):
        root = tmp_path / name
        check_sink(functools.partial(make, root), functools.partial(read, root), root / "state")


def deliver_for_ever(root: Path, first: int) -> None:
    """Deliver batches of a large part and a small one, until killed."""
    sink = es.sinks.parquet(root / "words")
    sink.check(start(before=None if first == 0 else ORIGIN))
    for batch in itertools.count(first):
        rows = [[("w", n) for n in range(20_000)], [("w", n) for n in range(10)]]
        sink.deliver(LocalDelivery(root / "state", ORIGIN, batch, WORDS, rows))


@pytest.mark.long
def test_a_reader_never_sees_part_of_a_batch(tmp_path: Path) -> None:
    """Catches: a batch that a reader finds in part, while it is published or after its driver was killed."""
    published = tmp_path / "words"
    spawn = multiprocessing.get_context("spawn")
    query = "select batch, count(*) from read_parquet(?, hive_partitioning = true) group by batch"
    seen = 0
    for _ in range(4):
        driver = spawn.Process(target=deliver_for_ever, args=(tmp_path, seen))
        driver.start()
        try:
            wait_for(functools.partial(Path.exists, published / f"batch={seen}"), "a batch more")
            for _ in range(10):
                found = dict(duckdb.execute(query, [f"{published}/**/*.parquet"]).fetchall())
                assert set(found.values()) == {20_010}, found
                assert sorted(found) == list(range(len(found)))
        finally:
            driver.kill()
            driver.join()
        seen = len(list(published.glob("batch=*")))


def test_stored_files_are_adopted(tmp_path: Path) -> None:
    """Catches: rows written a second time where a link does; a stored file that is moved, or can be changed by way of
    the folder; permissions of the checkpoint that hide the folder's files; a copy between file systems that differs."""
    sink = es.sinks.parquet(tmp_path / "words")
    (tmp_path / "words").mkdir(mode=0o755)
    (tmp_path / "words").chmod(0o755)
    sink.check(start())
    first = delivery(tmp_path, 0)
    stored = first.parts[0].parquet_file()
    assert stored is not None
    os.utime(stored, (0, 0))
    sink.deliver(first)
    assert stored.stat().st_mtime > 0, "as old as the checkpoint: a table's VACUUM would take it for a leftover"
    files = sorted((tmp_path / "words" / "batch=0").iterdir())
    assert [file.name for file in files] == ["part-00000.parquet", "part-00001.parquet"]
    assert files[0].samefile(stored), "not adopted"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o444}
    assert words(tmp_path / "words") == [("w0", n, 0) for n in range(5)]
    stored.unlink()  # as the checkpoint's end does
    assert words(tmp_path / "words") == [("w0", n, 0) for n in range(5)]

    (tmp_path / "words").chmod(0o700)  # nobody else may read what the folder gets from now on
    second = delivery(tmp_path, 1)
    stored = second.parts[0].parquet_file()
    assert stored is not None
    stored.chmod(0o644)
    sink.deliver(second)
    copied = tmp_path / "words" / "batch=1" / "part-00000.parquet"
    assert not copied.samefile(stored) and stat.S_IMODE(stored.stat().st_mode) == 0o644
    assert stat.S_IMODE(copied.stat().st_mode) == 0o400
    assert words(tmp_path / "words")[5:] == [("w1", n, 1) for n in range(5)]
    assert list((tmp_path / "_words.staging").iterdir()) == []


def test_damage_is_not_adopted(tmp_path: Path) -> None:
    """Catches: a damaged stored file that gets a second name, and is delivered."""
    sink = es.sinks.parquet(tmp_path / "words")
    sink.check(start())
    bad = delivery(tmp_path, 0)
    stored = bad.parts[0].parquet_file()
    assert stored is not None
    content = bytearray(stored.read_bytes())
    content[40] ^= 1
    stored.write_bytes(content)
    with raising(CorruptionError):
        sink.deliver(bad)
    assert not (tmp_path / "words" / "batch=0").exists()


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """Catches: a new query whose batch 0 is taken for the old one's and skipped; two jobs that mix; a folder of other
    files; what a killed driver left that stays for ever."""
    folder = tmp_path / "words"
    sink = es.sinks.parquet(folder)
    sink.check(start())
    (tmp_path / "_words.staging" / "left" / "batch").mkdir(parents=True)
    sink.deliver(delivery(tmp_path, 0))
    sink.check(start(before=ORIGIN))
    assert list((tmp_path / "_words.staging").iterdir()) == []
    other = Origin("beef", "cards", "9b1e", "totals", "main")
    for stranger in (None, other):
        with raising(SinkError, option="path", path=str(folder)):
            es.sinks.parquet(folder).check(start(before=stranger))
    with raising(SinkError, option="path"):
        sink.deliver(delivery(tmp_path, 0, other))
    (folder / "_emberstate.json").write_text("{", encoding="utf-8")
    with raising(SinkError, option="path", found={}):
        sink.deliver(delivery(tmp_path, 1))
    assert words(folder) == [("w0", n, 0) for n in range(5)]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with raising(SinkError, option="path", found=["notes.txt"]):
        es.sinks.parquet(tmp_path / "mine").check(start())


def test_what_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    """Catches: a mistake that shows after a batch is committed."""
    (tmp_path / "file").touch()
    with raising(SinkError, option="path", path=str(tmp_path / "file" / "words")):
        es.sinks.parquet(tmp_path / "file" / "words").check(start())
    for address in ("s3://bucket/words", "hdfs://host/words"):
        with raising(StateDeclarationError, option="path", found=address):
            es.sinks.parquet(address)
    with raising(StateDeclarationError, option="partition_by", found="word"):
        es.sinks.parquet(tmp_path / "words", partition_by="word")
    for columns in (["nothing"], ["word", "n"]):
        with raising(SinkError, option="partition_by", found=columns):
            es.sinks.parquet(tmp_path / "words", partition_by=columns).check(start())
    with raising(SinkError, option="path", column="Batch"):
        es.sinks.parquet(tmp_path / "words").check(start(RowType.of("Batch int, n int")))
    with raising(SinkError, option="schema"):
        es.sinks.parquet(tmp_path / "words").check(start(RowType.of("a int, A int")))
    assert es.sinks.parquet(f"file://{tmp_path}/words")._path == tmp_path / "words"


def test_a_driver_that_is_paused_at_any_point_destroys_nothing(tmp_path: Path) -> None:
    """Catches: a moment at which a driver that wakes up replaces, deletes or completes what another has published; a
    start that deletes a part of what a paused driver then publishes."""
    pausing: list[Any] = [None]
    count = 0

    def hook(event: str, arguments: Any) -> None:
        nonlocal count
        others = pausing[0]
        if others is not None and event in ("os.rename", "os.link", "os.mkdir", "os.chmod", "os.listdir", "os.scandir"):
            count += 1
            if others(count):
                pausing[0] = None

    sys.addaudithook(hook)  # for ever: it costs a comparison

    def paused_at(point: int, folder: Path) -> bool:
        """Whether there is such a point; there, a second driver starts, and delivers."""
        nonlocal count
        count, reached = 0, False
        first = es.sinks.parquet(folder)
        first.check(start())
        first.deliver(delivery(tmp_path, 0))

        def others(number: int) -> bool:
            nonlocal reached
            if number != point:
                return False
            reached, pausing[0] = True, None
            second = es.sinks.parquet(folder)
            second.check(start(before=ORIGIN))
            for batch in (1, 2):
                second.deliver(delivery(tmp_path, batch))
            return True

        given = delivery(tmp_path, 1)
        pausing[0] = others
        with contextlib.suppress(OSError, SinkError):
            first.deliver(given)
        pausing[0] = None
        if not reached:
            es.sinks.parquet(folder).deliver(delivery(tmp_path, 2))
        assert words(folder) == [(f"w{batch}", n, batch) for batch in range(3) for n in range(5)], point
        return reached

    points = 1
    while paused_at(points, tmp_path / f"words{points}"):
        points += 1
    assert points > 5
    assert list((tmp_path / "_words1.staging").iterdir()) == []
