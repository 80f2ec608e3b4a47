"""Runs the whole suite on the compiled hot modules and, beside it, the engine's part of it on the interpreted ones.

Three runs go side by side: the suite without Spark, which waits for the disk most of the time; the interpreted engine;
and what runs on Spark. All must pass, and the engine must have the same tests in both modes: a test that is silently
left out of one of them would make "behaves alike, compiled or interpreted" an empty claim. `make test` calls this after
it has built everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "build" / "test-results"
#: Written by setup.py if it found no C compiler.
NOTICE_FILE = ROOT / "build" / "interpreted"
#: What runs in both modes; `src` stands for its doctests.
ENGINE = [
    folder
    for folder in ("src", "tests/heap", "tests/state", "tests/codec", "tests/rocksdb", "tests/runtime")
    if (ROOT / folder).is_dir()
]
#: What starts Spark, or the command line in processes of its own: a run of its own.
SPARK = [
    path
    for path in (
        "tests/spark",
        "tests/cli",
        "tests/examples",
        "tests/stress",
        "tests/keygroups/test_against_spark.py",
        "tests/project/test_doc_code.py",
    )
    if (ROOT / path).exists()
]
#: Says, in either mode, whether the modules under test are the ones that the mode promises.
MODE_TEST = "tests/project/test_compiled.py"


@dataclass(frozen=True)
class Outcome:
    """What one run of pytest said, and its counts for the engine's tests."""

    succeeded: bool
    passed: int
    failed: int
    skipped: int

    @property
    def collected(self) -> int:
        return self.passed + self.failed + self.skipped

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def run(mode: str, interpreted: bool, paths: list[str], output: TextIO | None) -> Outcome:
    """Run pytest on the paths, in a process of its own: a process has the hot modules in one mode only."""
    report = RESULTS / f"{mode}.xml"
    report.unlink(missing_ok=True)
    process = subprocess.run(
        [sys.executable, "-m", "pytest", f"--junitxml={report}", *paths],
        cwd=ROOT,
        env={**os.environ, "EMBERSTATE_INTERPRETED": "1" if interpreted else "0"},
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        check=False,
    )
    return outcome(report, process.returncode)


def outcome(report: Path, code: int) -> Outcome:
    """Count the engine's tests in a JUnit report; there is none if pytest was ended."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    prefixes = tuple(folder.replace("/", ".") + "." for folder in ENGINE)
    cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
    for case in cases:
        if case.get("classname", "").startswith(prefixes):
            tags = {child.tag for child in case}
            failed = bool(tags & {"failure", "error"})
            counts["failed" if failed else "skipped" if "skipped" in tags else "passed"] += 1
    return Outcome(code == 0, **counts)


def beside(mode: str, interpreted: bool, paths: list[str]) -> Outcome:
    """Run pytest beside another run; its output goes to a file."""
    with log_of(mode).open("w", encoding="utf-8") as output:
        return run(mode, interpreted, paths, output)


def log_of(mode: str) -> Path:
    return RESULTS / f"{mode}.log"


def main() -> int:
    RESULTS.mkdir(parents=True, exist_ok=True)
    rest = ["src", "tests", *(f"--ignore={path}" for path in SPARK)]
    print(f"\n== compiled: {' '.join(rest)}; beside it, the engine interpreted, and {' '.join(SPARK)}", flush=True)
    with ThreadPoolExecutor(2) as others:
        second = others.submit(beside, "interpreted", True, [*ENGINE, MODE_TEST])
        third = others.submit(beside, "spark", False, SPARK)
        compiled = run("compiled", False, rest, None)
        interpreted, spark = second.result(), third.result()
    for mode in ("interpreted", "spark"):
        text = log_of(mode).read_text(encoding="utf-8") if log_of(mode).exists() else ""
        print(f"\n== {mode}\n{text}", flush=True)

    note = " (but there is no C compiler: interpreted as well)" if NOTICE_FILE.exists() else ""
    print(f"\nengine compiled: {compiled}{note}")
    print(f"engine interpreted: {interpreted}")
    if compiled.collected != interpreted.collected:
        print("The engine's tests are not the same in both modes", file=sys.stderr)
        return 1
    if not (compiled.succeeded and interpreted.succeeded and spark.succeeded):
        print("Tests failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
