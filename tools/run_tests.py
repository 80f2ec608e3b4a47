"""Runs the suite: the quick part of it for `make test`, the rest with `--long` for `make long`.

Several runs go side by side, so that the cores are busy to the end though most tests wait for a disk or for another
process. The quick part: the suite without Spark on the compiled hot modules; the engine's part of it on the interpreted
ones; what runs on Spark; what starts other processes; and `make check`. All must pass, and the engine must have the
same tests in both modes: a test that is silently left out of one of them would make "behaves alike, compiled or
interpreted" an empty claim.

The long part: the tests marked `long`, and the property tests with all their examples (tests/effort.py), in both modes.

What must have been built is built by `make`, which calls this.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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
#: What shares one Spark session; and what starts processes, sessions of its own among them, which it stops.
SPARK = ["tests/spark"]
PROCESSES = [
    "tests/benchmarks", "tests/cli", "tests/examples", "tests/stress", "tests/project/test_doc_code.py",
    "tests/keygroups/test_against_spark.py", "tests/checkpoint/commit/test_kills.py",
    "tests/spark/slot", "tests/spark/tables", "tests/spark/test_two_inputs.py",
]  # fmt: skip
#: Says, in either mode, whether the modules under test are the ones that the mode promises.
MODE_TEST = "tests/project/test_compiled.py"


@dataclass(frozen=True)
class Run:
    """One of the runs that go side by side: pytest with some arguments, or another command."""

    name: str
    arguments: Sequence[str] = ()
    interpreted: bool = False
    all_examples: bool = False
    command: Sequence[str] = (sys.executable, "-m", "pytest")

    @property
    def environment(self) -> Mapping[str, str]:
        """A process has the hot modules in one mode only."""
        given = {"EMBERSTATE_INTERPRETED": "1" if self.interpreted else "0", "MAKEFLAGS": ""}
        return {**os.environ, **given, **({"EMBERSTATE_EXAMPLES": "all"} if self.all_examples else {})}


#: `make integration` runs these.
INTEGRATION = "--ignore=tests/integration"
REST = ["src", "tests", INTEGRATION, *(f"--ignore={path}" for path in (*SPARK, *PROCESSES))]
SHARED = [*SPARK, *(f"--ignore={path}" for path in PROCESSES)]
QUICK = (
    Run("compiled", REST),
    Run("spark", SHARED),
    Run("processes", PROCESSES),
    Run("interpreted", [*ENGINE, MODE_TEST], interpreted=True),
    Run("check", command=("make", "--no-print-directory", "check")),
)
LONG = (
    Run("long-spark", ["-m", "long", *SHARED]),
    Run("long-processes", ["-m", "long", *PROCESSES]),
    Run("long", ["-m", "long", *REST]),
    Run("examples", ["-m", "hypothesis", "tests", INTEGRATION], all_examples=True),
    Run("examples-interpreted", ["-m", "hypothesis", *ENGINE], interpreted=True, all_examples=True),
)


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


def carry_out(run: Run, output: TextIO | None) -> Outcome:
    """Carry out a run in a process of its own."""
    report = RESULTS / f"{run.name}.xml"
    report.unlink(missing_ok=True)
    is_pytest = "pytest" in run.command
    process = subprocess.run(
        [*run.command, *([f"--junitxml={report}"] if is_pytest else []), *run.arguments],
        cwd=ROOT,
        env=run.environment,
        stdin=subprocess.DEVNULL,
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


def beside(run: Run) -> Outcome:
    """Carry out a run beside another; its output goes to a file."""
    with log_of(run).open("w", encoding="utf-8") as output:
        return carry_out(run, output)


def log_of(run: Run) -> Path:
    return RESULTS / f"{run.name}.log"


def side_by_side(runs: Sequence[Run]) -> dict[str, Outcome]:
    """Carry out all runs at once; the output of the first is seen at once, that of the others follows."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    first, *others = runs
    print(f"\n== {first.name}; beside it: {', '.join(run.name for run in others)}", flush=True)
    with ThreadPoolExecutor(len(others)) as pool:
        found = {run.name: pool.submit(beside, run) for run in others}
        outcomes = {first.name: carry_out(first, None)}
        outcomes |= {name: future.result() for name, future in found.items()}
    for run in others:
        text = log_of(run).read_text(encoding="utf-8") if log_of(run).exists() else ""
        print(f"\n== {run.name}\n{text}", flush=True)
    return outcomes


def main(arguments: Sequence[str]) -> int:
    is_long = "--long" in arguments
    outcomes = side_by_side(LONG if is_long else QUICK)
    if not is_long:
        compiled, interpreted = outcomes["compiled"], outcomes["interpreted"]
        note = " (but there is no C compiler: interpreted as well)" if NOTICE_FILE.exists() else ""
        print(f"\nengine compiled: {compiled}{note}")
        print(f"engine interpreted: {interpreted}")
        if compiled.collected != interpreted.collected:
            print("The engine's tests are not the same in both modes", file=sys.stderr)
            return 1
    failed = [name for name, outcome in outcomes.items() if not outcome.succeeded]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
