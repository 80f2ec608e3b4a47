"""Iceberg tables of a catalogue in SQLite, written by the sink and read by others."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import duckdb
import pytest

import emberstate as es
from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks import Origin, Start, iceberg_sink
from emberstate.testing import LocalDelivery, check_sink
from tests.raising import raising

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed: run `make integration`")
catalogues = pytest.importorskip("pyiceberg.catalog", reason="pyiceberg is not installed: run `make integration`")

ORIGIN = Origin("f00d", "cards", "9b1e", "totals", "main")
TOTALS = RowType.of("card string, total bigint")


def catalogue_of(root: Path) -> dict[str, str]:
    """The properties of a catalogue, which has a namespace."""
    root.mkdir(parents=True, exist_ok=True)
    properties = {"type": "sql", "uri": f"sqlite:///{root}/catalogue.db", "warehouse": f"file://{root}/tables"}
    opened(properties).create_namespace_if_not_exists("shop")
    return properties


def opened(properties: dict[str, str]) -> Any:
    """The catalogue."""
    return catalogues.load_catalog("test", **properties)


def sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The sink of a table's name."""
    return es.sinks.iceberg("test", f"shop.{name}", properties=catalogue_of(root))


def merging_sink_of(root: Path, name: str) -> es.sinks.Sink:
    """The same, by value, which no two rows share."""
    return es.sinks.iceberg("test", f"shop.{name}", properties=catalogue_of(root), merge=["value"])


def read(root: Path, name: str) -> list[tuple[Any, ...]]:
    """All rows, as pyiceberg reads them, and DuckDB the files that the table names."""
    scan = opened(catalogue_of(root)).load_table(f"shop.{name}").scan()
    found = [(row["key"], row["value"]) for row in scan.to_arrow().to_pylist()]
    files = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
    if files:
        assert sorted(duckdb.execute("select key, value from read_parquet(?)", [files]).fetchall()) == sorted(found)
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


def test_stored_files_become_the_tables_own_and_markers_outlive_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: rows written a second time where a link does; a batch that is appended again once the snapshot that had
    its mark has expired; a driver between whose load and commit another one delivered."""
    properties = catalogue_of(tmp_path)
    sink = es.sinks.iceberg("test", "shop.totals", properties=properties)
    sink.check(start())
    given = delivered(tmp_path, 0, [("ann", 1), ("bob", 2)], [("eve", 3)])
    stored = given.parts[0].parquet_file()
    assert stored is not None
    sink.deliver(given)
    table = opened(properties).load_table("shop.totals")
    files = sorted(task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
    assert [Path(file).samefile(stored) for file in files] == [True, False]
    other = Origin("beef", "cards", "77aa", "totals", "main")
    sink.deliver(delivered(tmp_path, 0, [("zoe", 9)], origin=other))
    table = opened(properties).load_table("shop.totals")
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    sink.deliver(delivered(tmp_path, 0, [("ann", 1), ("bob", 2)], [("eve", 3)]))

    mark = iceberg_sink._set

    def paused(*given: Any) -> None:
        mark(*given)
        monkeypatch.setattr(iceberg_sink, "_set", mark)
        sink.deliver(delivered(tmp_path, 1, [("ann", 5)]))

    monkeypatch.setattr(iceberg_sink, "_set", paused)
    sink.deliver(delivered(tmp_path, 1, [("ann", 5)]))
    rows = opened(properties).load_table("shop.totals").scan().to_arrow()
    assert sorted(rows.column("total").to_pylist()) == [1, 2, 3, 5, 9]


def test_upserts_keep_the_last_row_of_a_key(tmp_path: Path) -> None:
    """Catches: two rows of one key; an older one that wins; a batch that comes again and brings old rows back."""
    properties = catalogue_of(tmp_path)
    sink = es.sinks.iceberg("test", "shop.totals", properties=properties, merge=["card"])
    sink.check(start())
    first = [("ann", 1), ("bob", 2), ("ann", 5)], [("eve", 3)]
    sink.deliver(delivered(tmp_path, 0, *first))
    sink.deliver(delivered(tmp_path, 1, [("ann", 7)], [("eve", 9), ("zoe", 4)]))
    sink.deliver(delivered(tmp_path, 0, *first))
    sink.deliver(delivered(tmp_path, 2, [("ann", 7)]))  # changes nothing, and is marked all the same
    rows = opened(properties).load_table("shop.totals").scan().to_arrow().to_pylist()
    assert {row["card"]: row["total"] for row in rows} == {"ann": 7, "bob": 2, "eve": 9, "zoe": 4}
    assert len(rows) == 4
    assert opened(properties).load_table("shop.totals").properties[f"emberstate.delivered.{ORIGIN.id}"] == "2"


def test_what_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    """Catches: a mistake in the catalogue, the namespace or the columns that shows after a batch is committed; secrets
    that a pipeline prints."""
    properties = catalogue_of(tmp_path)
    es.sinks.iceberg("test", "shop.totals", properties=properties).check(start())
    for other in ("card string", "card string, total int", "card string, total bigint, more int", "a int, A int"):
        with raising(SinkError, option="schema"):
            es.sinks.iceberg("test", "shop.totals", properties=properties).check(start(RowType.of(other)))
    with raising(SinkError, option="catalog", found="NoSuchNamespaceError"):
        es.sinks.iceberg("test", "nowhere.totals", properties=properties).check(start())
    with raising(SinkError, option="catalog"):
        wrong = {**properties, "uri": "sqlite:////nowhere/at/all.db"}
        es.sinks.iceberg("test", "shop.totals", properties=wrong).check(start())
    with raising(StateDeclarationError, option="catalog"):
        es.sinks.iceberg(opened(properties), "shop.totals")
    assert repr(es.sinks.iceberg("prod", "a.b", properties={"token": "secret"})) == "iceberg('prod', 'a.b')"
