"""`emberstate doctor`: checks what a machine has and lacks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import click

from emberstate import _hot
from emberstate.checkpoint.files.meta import library_version
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, savepoint_names
from emberstate.checkpoint.manifest.location_hints import nothing_in
from emberstate.cli.console import finish, print_json, print_line, print_table
from emberstate.cli.exit_codes import PROBLEM
from emberstate.cli.selection import folders, json_option
from emberstate.clock import SystemClock
from emberstate.errors import EmberstateError, InstallationError
from emberstate.spark.java import GET_JAVA, OLDEST_VERSION, find_java
from emberstate.storage.local import LocalStorage
from emberstate.storage.uri import open_storage
from emberstate.units import size_text, time_text

_NEEDED: Final = ("pyarrow", "msgspec", "numpy", "xxhash")
#: Distribution → the extra that installs it.
_OPTIONAL: Final = {
    "pyspark": "spark", "pandas": "spark", "rocksdict": "rocksdb", "boto3": "s3", "rich": "cli", "matplotlib": "plot",
    "starlette": "ui", "uvicorn": "ui", "jinja2": "ui"
}  # fmt: skip
_LEAST_DISK: Final = 2**30
_LEAST_FILES: Final = 1024
_CLOCK_SLACK: Final = 60 * 1_000_000
_JAVA_SECONDS: Final = 30


class Finding(NamedTuple):
    """The result of one check."""

    name: str
    status: Literal["ok", "warning", "missing"]
    found: str
    advice: str = ""


@click.command()
@click.argument("location", required=False, shell_complete=folders)
@json_option
def doctor(location: str | None, as_json: bool) -> None:
    """Check what this machine has and lacks: Python, compiled modules, libraries, Java and Spark, disk, limits.

    With LOCATION, check also that it can be read, and that its conditional create works, by writing and deleting a
    small temporary file. Exit code 1 if something needed is missing.
    """
    findings = [*_software(), _java(), *_machine(), *([] if location is None else _location(location))]
    missing = any(finding.status == "missing" for finding in findings)
    if as_json:
        print_json({"ok": not missing, "findings": [finding._asdict() for finding in findings]})
    else:
        print_table(("", "status", "found", "what to do"), findings)
        print_line()
        print_line("something is missing" if missing else "all that is needed is there")
    finish(PROBLEM if missing else 0)


def _software() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Finding("emberstate", "ok", library_version())
    yield _compiled()
    for name in _NEEDED:
        version = _version(name)
        advice = f"pip install {name}"
        yield Finding(name, "missing", "", advice) if version is None else Finding(name, "ok", version)
    for name, extra in _OPTIONAL.items():
        version = _version(name)
        advice = f"only if it is wanted: pip install 'emberstate[{extra}]'"
        yield Finding(name, "warning", "not installed", advice) if version is None else Finding(name, "ok", version)


def _compiled() -> Finding:
    count = len(_hot.HOT_MODULES)
    built = sum(_hot.extension_file(name) is not None for name in _hot.HOT_MODULES)
    if _hot.interpreted_on_purpose():
        return Finding("hot modules", "warning", "interpreted, several times slower", f"unset {_hot.SWITCH}")
    if built < count:
        advice = "install a C compiler, and emberstate again"
        return Finding("hot modules", "warning", f"interpreted: {built} of {count} are compiled", advice)
    return Finding("hot modules", "ok", f"all {count} compiled")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    """The Java of a pipeline, needed if pyspark is installed; and whether it runs."""
    absent: Literal["missing", "warning"] = "missing" if _version("pyspark") is not None else "warning"
    try:
        java = find_java()
    except InstallationError as error:
        return Finding("java", absent, str(error).removesuffix(GET_JAVA).rstrip(), GET_JAVA)
    program = java.home / "bin" / "java"
    text = _java_version(program)
    if text is None:
        return Finding("java", absent, f"{java.source} ({program}) does not run", GET_JAVA)
    major = _major(text)
    too_old = major is not None and major < OLDEST_VERSION
    found = f"{text}, by {java.source}: {program}"
    return Finding("java", absent, found, GET_JAVA) if too_old else Finding("java", "ok", found)


def _java_version(program: Path) -> str | None:
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stderr or done.stdout).strip().splitlines()
    return lines[0] if done.returncode == 0 and lines else None


def _major(version: str) -> int | None:
    """The number of a Java release; 8 calls itself 1.8.

    >>> _major('openjdk version "17.0.2" 2022-01-18'), _major('java version "1.8.0_301"'), _major("what")
    (17, 8, None)
    """
    match = re.search(r'"(?:1\.)?([0-9]+)', version)
    return None if match is None else int(match[1])


def _machine() -> Iterator[Finding]:
    yield Finding("cores", "ok", str(os.cpu_count()))
    yield Finding("memory", "ok", size_text(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    yield _disk("temporary files", Path(tempfile.gettempdir()), "make room, or set TMPDIR")
    shared = Path("/dev/shm")
    if shared.is_dir():
        yield _disk("shared memory", shared, "in a container: give it more, e.g. docker run --shm-size=1g")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 0 <= soft < _LEAST_FILES
    yield Finding("open files", "warning" if few else "ok", str(soft), "raise it: ulimit -n 65536" if few else "")


def _disk(name: str, folder: Path, advice: str) -> Finding:
    usage = shutil.disk_usage(folder)
    found = f"{size_text(usage.free)} of {size_text(usage.total)} free in {folder}"
    return Finding(name, "warning", found, advice) if usage.free < _LEAST_DISK else Finding(name, "ok", found)


def _location(location: str) -> Iterator[Finding]:
    try:
        storage = open_storage(location)
        numbers, names = checkpoint_numbers(storage), savepoint_names(storage)
    except EmberstateError as error:
        yield Finding("location", "missing", str(error), "check the location and the rights of this process")
        return
    if numbers or names:
        found = f"{storage.describe()}: {len(numbers)} checkpoints, {len(names)} savepoints"
        yield Finding("location", "ok", found)
    elif isinstance(storage, LocalStorage) and Path(storage.describe()).is_file():
        yield Finding("location", "missing", nothing_in(storage), "name a directory: no job can run there")
        return
    else:
        yield Finding("location", "warning", nothing_in(storage), "if it is the right one: a job begins there empty")
    if isinstance(storage, LocalStorage):
        folder = Path(storage.describe())
        if not folder.is_dir():
            return  # and nothing is made by looking
        yield _disk("disk of location", folder, "make room: emberstate checkpoints du and gc show what takes it")
    yield from _newest(storage, numbers)
    try:
        storage.check_conditional_create()
    except EmberstateError as error:
        yield Finding("conditional create", "missing", str(error), "no job can run there")
    else:
        yield Finding("conditional create", "ok", "works")


def _newest(storage: Any, numbers: list[int]) -> Iterator[Finding]:
    if not numbers:
        return
    try:
        manifest = read_checkpoint(storage, numbers[-1])
    except EmberstateError as error:
        yield Finding("newest checkpoint", "warning", str(error), "emberstate checkpoints verify --all")
        return
    found = f"{manifest.number} of job {manifest.job!r}, written {time_text(manifest.created)} by {manifest.writer}"
    if manifest.created > SystemClock().now_micros() + _CLOCK_SLACK:
        yield Finding("newest checkpoint", "warning", f"{found}: in the future", "set the clocks of the machines")
    else:
        yield Finding("newest checkpoint", "ok", found)
