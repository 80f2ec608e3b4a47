"""Jars of a Spark session: connectors by short name, Maven coordinates, files.

Spark releases its connectors with every version of itself; one of another version may fail in the middle of a query. So
a short name stands for the connector of the installed version.

Thread safety: pure functions, but for a look at files and at the running JVM.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from emberstate.errors import InstallationError, LifecycleError, StateDeclarationError

#: Artifacts of Spark's own connectors, by short name.
CONNECTORS: Final = {"kafka": "spark-sql-kafka-0-10", "avro": "spark-avro"}
#: The Scala that every supported Spark is built with.
_SCALA: Final = "2.13"
_COORDINATES: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")

PACKAGES: Final = "spark.jars.packages"
JARS: Final = "spark.jars"


def with_jars(settings: Mapping[str, str], packages: Sequence[str], jars: Sequence[str | Path]) -> dict[str, str]:
    """The settings of a session, and those that give it these packages and jars. Raises for what cannot be."""
    made = dict(settings)
    for name, added in ((PACKAGES, _coordinates(packages)), (JARS, _files(jars))):
        if added:
            made[name] = ",".join([*filter(None, [settings.get(name)]), *added])
    return made


def refuse_running(settings: Mapping[str, str]) -> None:
    """Raise if this process runs Java already, without these jars: a running Java takes no more."""
    from pyspark import SparkContext

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if SparkContext._gateway is None and not submitted:
        return
    context = SparkContext._active_spark_context
    for name, option in ((PACKAGES, "--packages"), (JARS, "--jars")):
        wanted = set(filter(None, settings.get(name, "").split(",")))
        having = set() if context is None else set(filter(None, (context.getConf().get(name) or "").split(",")))
        if lacking := ",".join(sorted(wanted - having)):
            advice = f"Leave them out here, and give spark-submit {option} {lacking}."
            if not submitted:
                advice = "Give them where the process makes its first session, or start a new process."
            raise LifecycleError(
                f"session: Java runs already, without {lacking}, and jars cannot be added to it. {advice}",
                option=name, expected=sorted(wanted), found=sorted(having),
            )  # fmt: skip


def unresolved(settings: Mapping[str, str]) -> InstallationError:
    """The error for a Java that ended at its start, which it does if a package cannot be had."""
    asked = settings[PACKAGES]
    return InstallationError(
        f"session: Spark's Java ended at its start; it was asked for the packages {asked}. What it printed says which "
        f"could not be had: the name or version is wrong, or no repository can be reached. Check them, name a mirror "
        f"with settings={{'spark.jars.repositories': …}}, or fetch the jars yourself and give them as jars=[…].",
        option="packages",
        found=asked,
    )


def _coordinates(packages: Sequence[str]) -> list[str]:
    import pyspark

    if isinstance(packages, str):
        raise StateDeclarationError(
            f"packages: expected a list of names, got the text {packages!r}: write packages=[{packages!r}]",
            option="packages", found=packages,
        )  # fmt: skip
    found = []
    for one in packages:
        if one in CONNECTORS:
            found.append(f"org.apache.spark:{CONNECTORS[one]}_{_SCALA}:{pyspark.__version__}")
        elif isinstance(one, str) and _COORDINATES.fullmatch(one):
            found.append(one)
        else:
            names = sorted(CONNECTORS)
            raise StateDeclarationError(
                f"packages: expected one of {names} or Maven coordinates, 'group:artifact:version', got {one!r}",
                option="packages", expected=names, found=one,
            )  # fmt: skip
    return found


def _files(jars: Sequence[str | Path]) -> list[str]:
    if isinstance(jars, str | Path):
        raise StateDeclarationError(
            f"jars: expected a list of files, got {str(jars)!r}: write jars=[{str(jars)!r}]",
            option="jars", found=str(jars),
        )  # fmt: skip
    for one in jars:
        if "://" not in str(one) and not Path(one).is_file():
            raise InstallationError(
                f"jars: there is no file {one}. Check the path, or give a URL that Spark can read.",
                option="jars", path=str(one),
            )  # fmt: skip
    return [str(one) if "://" in str(one) else str(Path(one).absolute()) for one in jars]
