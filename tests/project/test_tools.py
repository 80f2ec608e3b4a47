"""The tools that `make` calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import run_tests
from tools.run_tests import Outcome

REPORT = """<testsuites><testsuite>
  <testcase classname="tests.codec.test_a" name="one"/>
  <testcase classname="tests.codec.test_a" name="two"><failure message="no"/></testcase>
  <testcase classname="tests.codec.test_a.TestB" name="three"><skipped message="later"/></testcase>
  <testcase classname="src.emberstate.heap.x" name="emberstate.heap.x"/>
  <testcase classname="tests.codecs.test_a" name="not of the engine"/>
  <testcase classname="tests.project.test_a" name="not of the engine"><error/></testcase>
</testsuite></testsuites>"""


def test_counts_are_of_the_engine(tmp_path: Path) -> None:
    """Catches: counts that compare the whole suite with a part of it, or take a failure for a pass."""
    report = tmp_path / "report.xml"
    report.write_text(REPORT, encoding="utf-8")

    assert run_tests.outcome(report, 1) == Outcome(succeeded=False, passed=2, failed=1, skipped=1)
    assert str(run_tests.outcome(report, 1)) == "2 passed, 1 failed, 1 skipped"


def test_no_report_is_a_failure(tmp_path: Path) -> None:
    """Catches: a crashed run that counts as one without failures."""
    assert run_tests.outcome(tmp_path / "none.xml", -11) == Outcome(False, 0, 0, 0)


@pytest.mark.parametrize("failing", ["long-spark", "long-processes", "long", "examples", "examples-interpreted"])
def test_the_long_part_fails_with_any_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Catches: `make long` that succeeds with failures, or that tries as little as `make test`."""
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    monkeypatch.setattr(run_tests, "carry_out", lambda run, _: Outcome(True, 0, 0, 0))
    assert run_tests.main(["--long"]) == 0
    monkeypatch.setattr(run_tests, "carry_out", lambda run, _: Outcome(run.name != failing, 0, 0, 0))
    assert run_tests.main(["--long"]) == 1
    tries_all = {run.name: run.environment.get("EMBERSTATE_EXAMPLES") == "all" for run in run_tests.LONG}
    assert {name for name, tries in tries_all.items() if tries} == {"examples", "examples-interpreted"}
    assert len(tries_all) == 5


def test_the_quick_part_leaves_nothing_out() -> None:
    """Catches: a folder or file of tests that no run has."""
    ignored = {argument.removeprefix("--ignore=") for argument in run_tests.REST if argument.startswith("--ignore")}
    assert ignored == {*run_tests.SPARK, *run_tests.PROCESSES, "tests/integration"}  # for `make integration`
    assert all((run_tests.ROOT / path).exists() for path in ignored)
    assert [run.name for run in run_tests.QUICK if run.command[0] == "make"] == ["check"]


@pytest.mark.parametrize(
    ("compiled", "interpreted", "others", "code"),
    [
        (Outcome(True, 5, 0, 0), Outcome(True, 5, 0, 0), True, 0),
        (Outcome(True, 5, 0, 0), Outcome(True, 4, 0, 1), True, 0),
        (Outcome(True, 5, 0, 0), Outcome(True, 4, 0, 0), True, 1),
        (Outcome(False, 5, 0, 0), Outcome(True, 5, 0, 0), True, 1),
        (Outcome(True, 5, 0, 0), Outcome(False, 4, 1, 0), True, 1),
        (Outcome(True, 5, 0, 0), Outcome(True, 5, 0, 0), False, 1),
    ],
)
def test_exit_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    compiled: Outcome,
    interpreted: Outcome,
    others: bool,
    code: int,
) -> None:
    """Catches: `make test` that succeeds with failures, or with tests missing in one mode."""
    outcomes = {"compiled": compiled, "interpreted": interpreted}
    monkeypatch.setattr(run_tests, "RESULTS", tmp_path)
    monkeypatch.setattr(run_tests, "carry_out", lambda run, _: outcomes.get(run.name, Outcome(others, 0, 0, 0)))

    assert run_tests.main([]) == code
    assert f"engine interpreted: {interpreted}\n" in capsys.readouterr().out
