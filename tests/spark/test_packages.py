"""The jars of a session: what names stand for, and what is refused before Java starts."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext

from emberstate.errors import InstallationError, LifecycleError, StateDeclarationError
from emberstate.spark import session
from emberstate.spark.packages import JARS, PACKAGES, refuse_running, with_jars
from tests.raising import raising


def test_a_short_name_is_the_connector_of_this_spark() -> None:
    """Catches: a connector of another version, which fails in the middle of a query; settings of the user's lost."""
    made = with_jars({PACKAGES: "a:b:1", "x": "y"}, ["kafka", "org.example:thing_2.13:2.0-rc1"], [])

    kafka = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    assert made == {"x": "y", PACKAGES: f"a:b:1,{kafka},org.example:thing_2.13:2.0-rc1"}


def test_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a path that Spark takes from another folder, or a URL taken for a path."""
    (tmp_path / "one.jar").write_bytes(b"")
    monkeypatch.chdir(tmp_path)

    assert with_jars({}, [], [Path("one.jar"), "hdfs://host/two.jar"]) == {
        JARS: f"{tmp_path}/one.jar,hdfs://host/two.jar"
    }


@pytest.mark.parametrize("wrong", ["kafak", "group:artifact", "a:b:1,c:d:2", 3])
def test_wrong_names_are_refused(wrong: object) -> None:
    """Catches: a misspelt connector that is found missing when the query starts, in Spark's words."""
    with raising(StateDeclarationError, option="packages", found=wrong):
        session("wrong", packages=[wrong])  # type: ignore[list-item]


def test_texts_and_missing_files_are_refused(tmp_path: Path) -> None:
    """Catches: a text taken for a list of letters; a jar that is not there, which Spark only warns of."""
    with raising(StateDeclarationError, option="packages"):
        session("wrong", packages="kafka")
    with raising(StateDeclarationError, option="jars"):
        session("wrong", jars="one.jar")
    with raising(InstallationError, option="jars", path=str(tmp_path / "no.jar")):
        session("wrong", jars=[tmp_path / "no.jar"])


def test_a_running_java_takes_no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: packages that are ignored in silence, because spark-submit or an earlier session has started Java."""
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    refuse_running({PACKAGES: "a:b:1"})
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    refuse_running({})
    with raising(LifecycleError, "spark-submit --packages a:b:1", option=PACKAGES):
        refuse_running({PACKAGES: "a:b:1"})
