"""Delta tables, written by the sink and read by others."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

import emberstate as es
from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks import DeltaSink, Origin, Start
from emberstate.testing import LocalDelivery, check_sink
from tests.raising import raising

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: run `make integration`")

ORIGIN = Origin("f00d", "cards", "9b1e", "totals", "main")
TOTALS = RowType.of("card string, total bigint")


def sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The sink of a table's name."""
    return es.sinks.delta(root / name)


def merging_sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The same, by value, which no two rows share."""
    return es.sinks.delta(root / name, merge=["value"])


def read(root: Path, name: str) -> list[tuple[Any, ...]]:
    """All rows, as DuckDB finds them in the files that the table names."""
    table = deltalake.DeltaTable(root / name)
    files = table.file_uris()
    found = duckdb.execute("select key, value from read_parquet(?)", [files]).fetchall() if files else []
    assert sorted(found) == sorted((row["key"], row["value"]) for row in table.to_pyarrow_table().to_pylist())
    return found


def start(row_type: RowType = TOTALS) -> Start:
    """A start; the sink needs no session."""
    session: Any = None
    return Start(session, "cards", "totals", "main", row_type, None)


def delivered(root: Path, batch: int, *parts: list[tuple[Any, ...]], origin: Origin = ORIGIN) -> LocalDelivery:
    """A batch of totals."""
    return LocalDelivery(root / "state", origin, batch, TOTALS, parts)


def test_conformance(tmp_path: Path) -> None:
    """Catches: a batch that is committed twice, in part or not at all, whatever dies, fails, pauses or comes again."""
    for name, make in (("append", sink_of), ("merge", merging_sink_of)):
        root = tmp_path / name
        check_sink(functools.partial(make, root), functools.partial(read, root), root / "state", kills=4)


def test_stored_files_become_the_tables_own(tmp_path: Path) -> None:
    """Catches: rows written a second time where a link does; a file that VACUUM or the checkpoint's end takes away from
    the other; counts that do not fit the rows."""
    sink = es.sinks.delta(tmp_path / "totals")
    sink.check(start())
    given = delivered(tmp_path, 0, [("ann", 1), ("bob", 2)], [("eve", 3)])
    stored = given.parts[0].parquet_file()
    assert stored is not None
    sink.deliver(given)
    table = deltalake.DeltaTable(tmp_path / "totals")
    assert [Path(uri.removeprefix("file://")).samefile(stored) for uri in sorted(table.file_uris())] == [True, False]
    stored.unlink()
    assert table.to_pyarrow_table().num_rows == table.count() == 3
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    sink.deliver(delivered(tmp_path, 0, [("ann", 1), ("bob", 2)], [("eve", 3)]))
    sink.deliver(delivered(tmp_path, 1, [("ann", 4)]))
    table = deltalake.DeltaTable(tmp_path / "totals")
    assert sorted(table.to_pyarrow_table().column("total").to_pylist()) == [1, 2, 3, 4]


def test_a_commit_is_never_rebased_on_another_drivers(tmp_path: Path) -> None:
    """Catches: a batch that is there twice: between a driver's comparison and its commit another one delivered it."""
    sink = DeltaSink(tmp_path / "totals", ())
    sink.check(start())
    made = 0

    def paused(**given: Any) -> Any:
        nonlocal made
        made += 1
        if made == 1:
            es.sinks.delta(tmp_path / "totals").deliver(delivered(tmp_path, 0, [("ann", 1)]))
        return deltalake.CommitProperties(**given)

    sink._delta = SimpleNamespace(**{**vars(deltalake), "CommitProperties": paused})
    sink.deliver(delivered(tmp_path, 0, [("ann", 1)]))
    assert deltalake.DeltaTable(tmp_path / "totals").to_pyarrow_table().to_pylist() == [{"card": "ann", "total": 1}]


def test_upserts_keep_the_last_row_of_a_key(tmp_path: Path) -> None:
    """Catches: two rows of one key; an older one that wins; a batch that comes again and brings old rows back; a
    paused driver that does; a null key that is inserted again and again."""
    sink = es.sinks.delta(tmp_path / "totals", merge=["card"])
    sink.check(start())
    first = [("ann", 1), ("bob", 2), ("ann", 5)], [("eve", 3)]
    sink.deliver(delivered(tmp_path, 0, *first))
    sink.deliver(delivered(tmp_path, 1, [("ann", 7)], [("eve", 9), ("zoe", 4)]))
    sink.deliver(delivered(tmp_path, 0, *first))
    rows = deltalake.DeltaTable(tmp_path / "totals").to_pyarrow_table().to_pylist()
    assert {row["card"]: row["total"] for row in rows} == {"ann": 7, "bob": 2, "eve": 9, "zoe": 4}
    assert len(rows) == 4

    class Paused(DeltaSink):
        def _upsert(self, *given: Any) -> None:
            sink.deliver(delivered(tmp_path, 2, [("ann", 10)]))
            sink.deliver(delivered(tmp_path, 3, [("ann", 11)]))
            super()._upsert(*given)

    Paused(tmp_path / "totals", ["card"]).deliver(delivered(tmp_path, 2, [("ann", 10)]))
    rows = deltalake.DeltaTable(tmp_path / "totals").to_pyarrow_table().to_pylist()
    assert [row["total"] for row in rows if row["card"] == "ann"] == [11]
    with raising(SinkError, option="merge", column="card"):
        sink.deliver(delivered(tmp_path, 4, [(None, 1)]))
    with raising(SinkError, option="merge", found=["nothing"]):
        es.sinks.delta(tmp_path / "totals", merge=["nothing"]).check(start())
    with raising(StateDeclarationError, option="merge", found="card"):
        es.sinks.delta(tmp_path / "totals", merge="card")


def test_a_table_that_cannot_take_the_rows_is_refused_at_the_start(tmp_path: Path) -> None:
    """Catches: a table of another schema, or with rules that added files would break, that is written all the same."""
    es.sinks.delta(tmp_path / "totals").check(start())
    for other in ("card string", "card string, total int", "card string, total bigint, more int"):
        with raising(SinkError, option="schema"):
            es.sinks.delta(tmp_path / "totals").check(start(RowType.of(other)))
    with raising(SinkError, option="schema"):
        es.sinks.delta(tmp_path / "odd").check(start(RowType.of("a int, A int")))
    schema = deltalake.DeltaTable(tmp_path / "totals").schema()
    deltalake.DeltaTable.create(tmp_path / "parts", schema, partition_by=["card"])
    with raising(SinkError, option="path", found=["partitioned by card"]):
        es.sinks.delta(tmp_path / "parts").check(start())
    deltalake.DeltaTable(tmp_path / "totals").alter.add_constraint({"positive": "total > 0"})
    with raising(SinkError, option="path"):
        es.sinks.delta(tmp_path / "totals").check(start())
    (tmp_path / "file").touch()
    with raising(SinkError, option="path"):
        es.sinks.delta(tmp_path / "file" / "totals").check(start())
    with raising(StateDeclarationError, option="path", found="s3://bucket/totals"):
        es.sinks.delta("s3://bucket/totals")
