"""Packages of a session, fetched by Spark itself from the registry; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.spark.spark_session import ROOT

pytestmark = pytest.mark.spark

#: A small package, and a class of it.
PACKAGE, CLASS = "org.apache.commons:commons-pool2:2.12.1", "org.apache.commons.pool2.PooledObject"

_PROGRAM = """
import sys
from emberstate.errors import InstallationError, LifecycleError
from emberstate.spark import session
settings = {"spark.jars.ivy": sys.argv[1], "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
try:
    spark = session("packages", master="local[1]", settings=settings, packages=[sys.argv[2]])
except InstallationError as error:
    print("refused", error.option, error.found)
    sys.exit()
loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
print("loaded", loader.loadClass(sys.argv[3]).getName())
assert session("again", settings=settings, packages=[sys.argv[2]]) is spark
try:
    session("more", packages=["kafka"])
except LifecycleError as error:
    print("refused", error.option)
spark.stop()
"""


def printed(folder: Path, package: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), package, CLASS],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_a_package_is_fetched(tmp_path: Path) -> None:
    """Catches: packages that do not reach Java; packages for a second session that are ignored in silence."""
    found = printed(tmp_path, PACKAGE)
    if found[0].startswith("refused"):
        pytest.skip(f"Spark cannot fetch {PACKAGE} here: no registry can be reached")

    assert found[-2:] == [f"loaded {CLASS}", "refused spark.jars.packages"]


def test_a_package_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Catches: a wrong version told in words about Java's gateway."""
    assert printed(tmp_path, "org.apache.commons:commons-pool2:0.0.1")[-1] == (
        "refused packages org.apache.commons:commons-pool2:0.0.1"
    )
