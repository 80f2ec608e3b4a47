"""The cache of extension files, which clones share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

SETUP = Path(__file__).parents[2] / "setup.py"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cache in a folder that is not there yet."""
    monkeypatch.chdir(SETUP.parent)
    monkeypatch.setenv("EMBERSTATE_BUILD_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {}
    exec(compile(SETUP.read_text(encoding="utf-8").partition("\nsetup(")[0], SETUP.name, "exec"), names)
    return names["Cache"]()


def test_what_was_built_comes_back_by_its_content(cache: Any, tmp_path: Path) -> None:
    """Catches: an extension of other sources, or of another module, that is taken for the one wanted."""
    built, target = tmp_path / "built.so", tmp_path / "target.so"
    built.write_bytes(b"code")
    assert not cache.fetch("emberstate.a", "sources", target)
    cache.keep("emberstate.a", "sources", built)
    assert not cache.fetch("emberstate.a", "other sources", target)
    assert not cache.fetch("emberstate.b", "sources", target)
    assert cache.fetch("emberstate.a", "sources", target)
    assert target.read_bytes() == b"code"


def test_what_no_build_asks_for_is_deleted(cache: Any, tmp_path: Path) -> None:
    """Catches: a folder that grows for ever, and a file deleted that builds use."""
    built = tmp_path / "built.so"
    built.write_bytes(b"code")
    for sources in ("old", "used"):
        cache.keep("emberstate.a", sources, built)
        os.utime(cache.file("emberstate.a", sources), (0, 0))
    assert cache.fetch("emberstate.a", "used", tmp_path / "target.so")
    cache.keep("emberstate.a", "new", built)
    assert {file.name for file in cache.folder.iterdir()} == {
        cache.file("emberstate.a", sources).name for sources in ("used", "new")
    }


def test_a_folder_that_cannot_be_used_is_an_empty_one(cache: Any, tmp_path: Path) -> None:
    """Catches: a build that fails because of its cache."""
    cache.folder.write_bytes(b"a file")
    built = tmp_path / "built.so"
    built.write_bytes(b"code")
    cache.keep("emberstate.a", "sources", built)
    assert not cache.fetch("emberstate.a", "sources", tmp_path / "target.so")
