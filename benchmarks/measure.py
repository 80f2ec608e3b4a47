"""Timing two things side by side, and writing down what came out."""

from __future__ import annotations

import dataclasses
import gc
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SEED = 20261115


@dataclasses.dataclass
class Target:
    """A number that was promised: `value` should be at most `limit`."""

    name: str
    value: float
    limit: float
    unit: str = "x"

    @property
    def met(self) -> bool:
        """Whether the promise holds."""
        return self.value <= self.limit


def timed(function: Callable[[], Any]) -> float:
    """CPU seconds of one call, without the collector's, and without freeing what the call returns."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()  # not the clock on the wall: other work on the machine should not count
        made = function()
        seconds = time.process_time() - start
        del made
        return seconds
    finally:
        gc.enable()


def side_by_side(
    candidate: Callable[[int], Any], baseline: Callable[[int], Any], rounds: int
) -> tuple[float, float, float]:
    """Median seconds of both, and the median ratio, over `rounds` of one run each, taking turns."""
    mine, theirs, ratios = [], [], []
    for number in range(rounds):
        if number % 2:
            one, other = timed(lambda n=number: candidate(n)), timed(lambda n=number: baseline(n))  # type: ignore[misc]
        else:
            other, one = timed(lambda n=number: baseline(n)), timed(lambda n=number: candidate(n))  # type: ignore[misc]
        mine.append(one)
        theirs.append(other)
        ratios.append(one / other)
    return statistics.median(mine), statistics.median(theirs), statistics.median(ratios)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header, numbers to three digits."""
    texts = [[f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(header))]
    print(f"\n{title}")
    for number, row in enumerate(texts):
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))


def save(name: str, iterations: int, results: dict[str, Any], targets: Sequence[Target]) -> None:
    """Print the targets and write `results/<name>.json`."""
    for target in targets:
        print(
            f"  {'met   ' if target.met else 'MISSED'} {target.name}: {target.value:.3g} {target.unit}, "
            f"promised at most {target.limit:.3g}"
        )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    record = {
        "name": name,
        "commit": commit.stdout.strip() or None,
        "seed": SEED,
        "iterations": iterations,
        "python": platform.python_version(),
        "results": results,
        "targets": [{**dataclasses.asdict(target), "met": target.met} for target in targets],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
