"""The PostgreSQL sink on a real server: what it promises, what it refuses, what it writes."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import SinkError, StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.sinks import Origin, PostgresSink, Start
from emberstate.testing.sinks import LocalDelivery, check_sink
from tests.integration.postgres.server import server
from tests.integration.processes import free_ports
from tests.raising import raising

ROWS = RowType.of("key string, value bigint")
ORIGIN = Origin("f00d", "job", "query", "totals", "main")


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with server() as found:
        yield found


def run(dsn: str, query: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(dsn) as db:
        done = db.execute(query)
        return list(done) if done.description else []


def make_sink(dsn: str, name: str) -> PostgresSink:
    """A sink of a table, which is made if it is not there; for other processes, too."""
    run(dsn, f"CREATE TABLE IF NOT EXISTS {name} (key text, value bigint)")
    return es.sinks.postgres(dsn, name)


def start(row_type: RowType = ROWS) -> Start:
    return Start(None, "job", "totals", "main", row_type, None)  # type: ignore[arg-type]


def test_it_holds_its_promise(dsn: str, tmp_path: Path) -> None:
    """Catches: rows lost or written twice by deaths, pauses, redeliveries; a part of a batch; a skipped new query."""
    check_sink(functools.partial(make_sink, dsn), lambda name: run(dsn, f"SELECT * FROM {name}"), tmp_path, kills=4)


def test_values_arrive_unchanged(dsn: str, tmp_path: Path) -> None:
    """Catches: a number, time or text that PostgreSQL changes or rounds."""
    columns = {
        "b": "boolean", "t": "tinyint", "i": "int", "n": "bigint", "f": "float", "x": "double", "d": "decimal(20,4)",
        "s": "string", "u": "string", "raw": "binary", "day": "date", "ts": "timestamp", "wall": "timestamp_ntz",
    }  # fmt: skip
    wide = RowType.of(", ".join(f"{name} {kind}" for name, kind in columns.items()))
    run(dsn, "CREATE TABLE wide (b boolean, t smallint, i integer, n bigint, f real, x double precision, "
        "d numeric(20,4), s text, u bytea, raw bytea, day date, ts timestamptz, wall timestamp, more int DEFAULT 7)")
    moment = datetime(2026, 5, 4, 12, 0, 0, 123456)
    rows = [
        (True, -128, -(2**31), 2**63 - 1, 1.5, math.inf, Decimal("-1234567890123456.7891"), "tab\t\\N\n\"ä", "nul\0",
         b"\0\xff\\", date(1, 1, 1), moment.replace(tzinfo=UTC), moment),
        (None,) * 13,
    ]  # fmt: skip
    sink = es.sinks.postgres(dsn, "public.wide")
    sink.check(start(wide))

    sink.deliver(LocalDelivery(tmp_path, ORIGIN, 0, wide, [rows]))

    found = run(dsn, "SELECT * FROM wide ORDER BY b")
    assert found[0] == (*rows[0][:8], b"nul\0", *rows[0][9:], 7) and found[1] == (*rows[1], 7)
    nan = RowType.of("x double")
    es.sinks.postgres(dsn, "wide").deliver(LocalDelivery(tmp_path, ORIGIN, 0, nan, [[(math.nan,)]]))
    assert run(dsn, "SELECT count(*) FROM wide WHERE x = 'NaN'") == [(1,)]


def test_what_cannot_be_is_refused(dsn: str, tmp_path: Path) -> None:
    """Catches: a wrong address, user, table, column or right that is found out after the first commit; a NUL lost."""
    run(dsn, "CREATE TABLE fits (key text, value bigint)")
    run(dsn, "CREATE TABLE narrow (key text, value integer)")
    run(dsn, "CREATE TABLE short (key varchar(9), value bigint)")
    run(dsn, "CREATE ROLE guest LOGIN")
    port = free_ports(1)[0]
    cases: list[tuple[str, str, RowType, dict[str, Any]]] = [
        (f"host=127.0.0.1 port={port}", "fits", ROWS, {"option": "dsn"}),
        (dsn.replace("owner", "nobody"), "fits", ROWS, {"option": "dsn"}),
        (dsn.replace("owner", "guest"), "fits", ROWS, {"option": "table", "found": "InsufficientPrivilege"}),
        (dsn, "missing", ROWS, {"option": "table", "found": '"missing"'}),
        (dsn, "narrow", ROWS, {"column": "value", "found": "integer"}),
        (dsn, "short", ROWS, {"column": "key", "found": "character varying(9)"}),
        (dsn, "fits", RowType.of("key string, list array<int>"), {"column": "list"}),
    ]
    for where, table, row_type, place in cases:
        with raising(SinkError, **place):
            es.sinks.postgres(where, table).check(start(row_type))
    with raising(StateDeclarationError, option="table"):
        es.sinks.postgres(dsn, "")
    assert "secret" not in repr(es.sinks.postgres("postgresql://me:secret@host/db", "t"))
    sink = es.sinks.postgres(dsn, "fits")
    sink.check(start())
    delivery = LocalDelivery(tmp_path, ORIGIN, 0, ROWS, [[("a", 1)], [("nul\0", 2)]])
    with raising(SinkError, column="key", found="NUL"):
        sink.deliver(delivery)
    assert run(dsn, "SELECT * FROM fits") == []
    run(dsn, "ALTER TABLE fits ALTER COLUMN key TYPE bytea USING convert_to(key, 'UTF8')")
    sink.deliver(delivery)
    assert sorted(run(dsn, "SELECT * FROM fits")) == [(b"a", 1), (b"nul\0", 2)]
    assert run(dsn, "SELECT relname FROM pg_class WHERE relname LIKE 'emberstate_staging%'") == []
