"""Pages of the documentation that need Spark run: those with a block marked ```` ```python spark ````.

They share the tests' session, which is what `emberstate.spark.session` gives a page. A program that a page has
killed is a driver of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project.markdown import ROOT, run_documents
from tests.project.page import needs_servers, needs_spark, run_page
from tests.spark.spark_session import MARK, check_nothing_left, environment

pytestmark = pytest.mark.spark

#: What a reader has no need of, and tests have: a Spark that is up soon.
QUICK = """\
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.host 127.0.0.1
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
"""

PAGES = [file for file in run_documents() if needs_spark(file) and not needs_servers(file)]


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment for drivers of a page; at the end nothing of them may be left."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(QUICK, encoding="utf-8")
    given = {**environment(temporary), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(settings)}
    yield given
    check_nothing_left(given[MARK], temporary)


#: They start drivers of their own, or several queries, or wait for the clock.
_LONG = ("quickstart.md", "savepoints.md", "heartbeat-and-time.md", "pipelines.md", "recover.md", "rescale.md")


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=[pytest.mark.long] if file.name in _LONG else []) for file in PAGES],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_page_runs(
    file: Path, spark: Any, drivers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: an example that the code has moved away from."""
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    try:
        run_page(file, {**os.environ, **drivers})
    finally:
        for query in spark.streams.active:
            query.stop()


def test_there_are_pages() -> None:
    """Catches: a mark that is not found any more."""
    assert {"quickstart.md", "rescale.md", "savepoints.md"} <= {file.name for file in PAGES}
