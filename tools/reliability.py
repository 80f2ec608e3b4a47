"""Prints which tests cover which item of the reliability list, and fails if an item has none, or only skipped ones.

Tests say it by `@pytest.mark.reliability(item)`. Nothing is run: tests are only collected.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import defaultdict

import pytest

#: What must survive, or be refused. Numbers are for good.
ITEMS = {
    1: "SIGKILL at random moments while a base is written",
    2: "SIGKILL at every named point",
    3: "power loss: unsynced bytes and names are lost, torn or kept",
    4: "manifest truncated at every byte",
    5: "every single bit flipped, in manifest and state file",
    6: "the same with checksums not compared",
    7: "files missing, empty, swapped, extra; paths that lead outside",
    8: "disk full, quota, I/O errors, too many open files, at every call",
    9: "fsync fails once",
    10: "storage slower than the batches",
    11: "object stores: lost replies, no atomic rename",
    12: "a zombie writes after a newer commit",
    13: "two live processes on one location",
    14: "a background write fails",
    15: "crash during recovery, migration, rescaling",
    16: "the newest checkpoint is damaged",
    17: "out of memory while copying",
    18: "random operations on the state map against a dict",
    19: "everything together against a model",
    20: "isolation of snapshots; equal state, equal bytes",
    21: "key groups for good; rescaling up and down",
    22: "timers and time to live at their boundaries",
    23: "real jobs, clean and with crashes and rescaling: equal results",
    24: "format versions: golden files, later versions, unknown fields",
    25: "evolution of types and states: the verdicts",
    26: "hostile files: no code runs",
    27: "hostile files: bombs, huge lengths, deep nesting",
    28: "faults of user functions",
    29: "state used from where it must not be",
    30: "environment: time zones, locales, read-only and odd paths, clock skew",
}


class Collector:
    """A pytest plugin that notes which item each test is for."""

    def __init__(self) -> None:
        self.tests: dict[int, list[str]] = defaultdict(list)
        self.skipped: dict[int, list[str]] = defaultdict(list)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called by pytest."""
        for item in session.items:
            for marker in item.iter_markers("reliability"):
                found = self.skipped if _is_skipped(item) else self.tests
                name = item.nodeid.partition("[")[0]
                if name not in found[marker.args[0]]:
                    found[marker.args[0]].append(name)


def _is_skipped(item: pytest.Item) -> bool:
    conditions = [marker.args[0] for marker in item.iter_markers("skipif") if marker.args]
    return any(True for _ in item.iter_markers("skip")) or any(conditions)


def main(folders: list[str]) -> int:
    """Print the table; 1 if an item is not covered."""
    collector = Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *folders], plugins=[collector])
    if code != pytest.ExitCode.OK:
        print(said.getvalue())
        print(f"reliability: the tests could not be collected (exit code {code})")
        return 1
    wrong = 0
    for item, what in ITEMS.items():
        tests, skipped = collector.tests[item], collector.skipped[item]
        print(f"{item:3}  {what}: {len(tests)} tests")
        for test in tests:
            print(f"       {test}")
        if not tests:
            wrong += 1
            print(f"       NOT COVERED{f': only skipped tests, {skipped}' if skipped else ''}")
    for item in sorted(collector.tests.keys() - ITEMS.keys()):
        wrong += 1
        print(f"{item:3}  is no item of the list: {collector.tests[item]}")
    print(f"reliability: {len(ITEMS) - wrong} of {len(ITEMS)} items covered")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests"]))
