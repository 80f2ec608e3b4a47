"""A job on Spark that delivers to a folder, a Delta and an Iceberg table, through kills at points of its sinks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.spark.driver_process import Driver
from tests.spark.pipeline_functions import events, totals
from tests.spark.streams import Stream

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed: run `make integration`")
pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: run `make integration`")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: run `make integration`")

pytestmark = pytest.mark.spark


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """Drivers that are ended with the test."""
    started: list[Driver] = []
    yield started
    for driver in started:
        driver.kill()


def test_every_row_is_in_every_target_once(tmp_path: Path, drivers: list[Driver]) -> None:
    """Catches: a row that a target has twice or not at all, because its driver died between or in the sinks, and
    another delivered the batch, at another parallelism; large outputs that are written again, not adopted."""
    from tests.integration.tables_driver import POINTS
    from tests.integration.test_iceberg import catalogue_of, opened

    given = events(24_000, keys=2_000)
    Stream(None, tmp_path).add(*(given[n : n + 6_000] for n in range(0, 24_000, 6_000)))
    for batch, point in enumerate(POINTS):
        drivers.append(
            Driver(tmp_path, str(1 + batch % 2), point, str(batch), module="tests.integration.tables_driver")
        )
        assert drivers[-1].wait() == -signal.SIGKILL, drivers[-1].printed()
    drivers.append(Driver(tmp_path, "3", module="tests.integration.tables_driver"))
    assert drivers[-1].wait() == 0, drivers[-1].printed()

    expected = sorted(totals(given))
    folder = duckdb.execute("select key, total, seen from read_parquet(?)", [f"{tmp_path}/folder/**/*.parquet"])
    assert sorted(folder.fetchall()) == expected
    assert f"read by Spark: {len(expected)}" in drivers[-1].printed()
    for table in (
        deltalake.DeltaTable(tmp_path / "delta").to_pyarrow_table(),
        opened(catalogue_of(tmp_path / "iceberg")).load_table("shop.totals").scan().to_arrow(),
    ):
        assert sorted(_rows(table)) == expected
    linked = [file.stat().st_nlink for file in (tmp_path / "folder").glob("batch=*/*.parquet")]
    assert max(linked) >= 3, "large files of the folder and of the tables are one"


def _rows(table: Any) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in ("key", "total", "seen")), strict=True)
