"""The comparison of NEXMark's answers objects to every kind of wrong answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from benchmarks.nexmark.generator import Config, write_files
from benchmarks.nexmark.oracle import Oracle
from benchmarks.nexmark.queries import QUERIES


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 events over 100 seconds."""
    folder = tmp_path_factory.mktemp("events")
    write_files(folder, Config(seed=2, rate=20), 2_000, 2)
    return folder


@pytest.fixture(scope="module")
def oracle(files: Path) -> Oracle:
    return Oracle(files)


@pytest.fixture
def answer(files: Path, tmp_path: Path) -> Iterator[Any]:
    """Writes q2's answer, changed by some SQL, as a job's output; returns the folder."""
    database: Any = duckdb.connect()
    database.execute(f"CREATE VIEW bid AS SELECT bid.* FROM '{files}/*.parquet' WHERE event_type = 2")
    (tmp_path / "0").mkdir()

    def write(change: str) -> Path:
        answer = f"WITH answer AS ({QUERIES['q2'].oracle}) {change}"
        database.execute(f"COPY ({answer}) TO '{tmp_path}/0/part.parquet' (FORMAT parquet)")
        return tmp_path

    yield write
    database.close()


@pytest.mark.parametrize("name", QUERIES)
def test_every_answer_has_rows(oracle: Oracle, name: str) -> None:
    """Catches: SQL that does not run, and an answer so empty that doing nothing is right."""
    assert oracle.rows(QUERIES[name]) > 0


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("SELECT * FROM answer", []),
        ("SELECT * FROM answer LIMIT 1", ["missing"]),
        ("SELECT * FROM answer UNION ALL (SELECT * FROM answer LIMIT 1)", ["unexpected"]),
        ("SELECT auction, price + (price = (SELECT max(price) FROM answer))::INT AS price FROM answer",
         ["missing", "unexpected"]),
        ("SELECT * FROM answer WHERE false", ["missing"]),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_found(oracle: Oracle, answer: Any, change: str, wrong: list[str]) -> None:
    """Catches: a comparison that passes over a lost row, a row that came twice, or a wrong value."""
    found = oracle.differences(QUERIES["q2"], answer(change))
    assert [word for line in found for word in ("missing", "unexpected") if f"rows {word}" in line] == wrong
    some = [line for line in oracle.unexpected(QUERIES["q2"], answer(change)) if line != "no rows at all"]
    assert bool(some) == ("unexpected" in wrong)


def test_an_output_without_files_is_empty(oracle: Oracle, tmp_path: Path) -> None:
    """Catches: a job that wrote nothing and passes."""
    assert oracle.differences(QUERIES["q2"], tmp_path)
    assert oracle.unexpected(QUERIES["q2"], tmp_path)


def test_a_version_that_comes_twice_is_wrong(oracle: Oracle, files: Path, tmp_path: Path) -> None:
    """Catches: updates from state that was lost and began anew, hidden by the last one."""
    query = QUERIES["q18"]
    database: Any = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    database.execute(f"CREATE VIEW bid AS SELECT bid.* FROM '{files}/*.parquet' WHERE event_type = 2")
    for batch in (0, 1):
        assert bool(oracle.differences(query, tmp_path)) == (batch == 0)
        (tmp_path / str(batch)).mkdir()
        database.execute(f"COPY ({query.oracle}) TO '{tmp_path}/{batch}/part.parquet' (FORMAT parquet)")
    (found,) = oracle.differences(query, tmp_path)
    assert "the same version twice" in found
