"""The table of the reliability list fails when it should."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import reliability

TESTS = """
import pytest

@pytest.mark.reliability(1)
@pytest.mark.parametrize("n", [1, 2])
def test_one(n): ...

@pytest.mark.reliability(2)
@pytest.mark.skip
def test_two(): ...

@pytest.mark.reliability(3)
@pytest.mark.skipif(True, reason="never")
def test_three(): ...
"""


@pytest.mark.parametrize(
    ("items", "code", "expected"),
    [
        ({1: "a"}, 0, "1 of 1 items covered"),
        ({1: "a", 2: "b"}, 1, "only skipped tests"),
        ({1: "a", 3: "c"}, 1, "only skipped tests"),
        ({1: "a", 4: "d"}, 1, "NOT COVERED"),
        ({4: "d"}, 1, "is no item of the list"),
    ],
)
def test_an_item_without_tests_fails(
    items: dict[int, str],
    code: int,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Catches: an item that only skipped tests cover, or none, passing for covered."""
    file = tmp_path / "test_made_up.py"
    file.write_text(TESTS, encoding="utf-8")
    monkeypatch.setattr(reliability, "ITEMS", items)

    assert reliability.main([str(file)]) == code
    assert expected in capsys.readouterr().out


def test_what_cannot_be_collected_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: tests that do not even import, passing for a table without them."""
    file = tmp_path / "test_broken.py"
    file.write_text("import no_such_module\n", encoding="utf-8")

    assert reliability.main([str(file)]) == 1
    assert "could not be collected" in capsys.readouterr().out
