"""Jars from Maven Central, for tests against a real broker: fetched by Maven, once, into build/jars.

A set of jars is a folder that appears whole: Maven copies into a folder beside it, which is then renamed. What cannot
be had on a machine raises `Unavailable`, with the words that a skipped test says.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

JARS: Final = Path(__file__).parent.parent / "build" / "jars"

BROKER: Final = "org.apache.kafka:kafka_2.13:3.9.2"
#: What Spark's connector needs that Spark itself has not, besides its own token provider.
_CLIENTS: Final = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.12.1")
#: For a registry that has not this Spark's: the newest connector that it has, with the newest token provider.
_OTHER: Final = ("4.2.0", "4.0.0")


class Unavailable(Exception):
    """Jars that cannot be had here; says which and why."""


def broker_jars() -> list[Path]:
    """The jars of a Kafka broker with everything that it needs."""
    return fetch("broker", [BROKER], alone=False)


def connector_jars() -> list[Path]:
    """The jars of Spark's Kafka connector: of the installed Spark, or of another if the registry has not that."""
    own, other = version("pyspark"), _OTHER[0]
    if not (JARS / f"connector-{other}").exists():
        try:
            return fetch(f"connector-{own}", _connector(own, own), alone=True)
        except Unavailable:
            print(f"the registry has no connector for Spark {own}: that of {other} is used", flush=True)
    return fetch(f"connector-{other}", _connector(*_OTHER), alone=True)


def fetch(name: str, coordinates: list[str], *, alone: bool) -> list[Path]:
    """The jars of a set, out of `build/jars`, or from Maven; each `alone`, or with all that they ask for."""
    folder = JARS / name
    if not folder.exists():
        _copy(folder, coordinates, alone)
    return sorted(folder.glob("*.jar"))


def _copy(folder: Path, coordinates: list[str], alone: bool) -> None:
    if shutil.which("mvn") is None:
        raise Unavailable(f"{coordinates[0]} needs Maven: there is no mvn")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        project, jars = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        project.write_text(_project(coordinates, alone), encoding="utf-8")
        command = ["mvn", "-q", "-B", "-U", "-f", str(project), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={jars}"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode:
            why = next((line for line in done.stdout.splitlines() if "ERROR" in line), "mvn failed")
            raise Unavailable(f"Maven cannot get {coordinates[0]}: {why:.300}")
        try:
            jars.rename(folder)
        except OSError:
            if not folder.exists():  # another process was first
                raise


def _connector(spark: str, tokens: str) -> list[str]:
    return [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{tokens}",
        *_CLIENTS,
    ]


def _project(coordinates: list[str], alone: bool) -> str:
    others = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = []
    for one in coordinates:
        group, artifact, number = one.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
            f"{others if alone else ''}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>emberstate</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(wanted)}</dependencies></project>"
    )
