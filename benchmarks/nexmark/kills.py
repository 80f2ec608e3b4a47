"""Slots and drivers that are killed while a job runs, by SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_SLOT = b"emberstate.spark.slot.process"


def slot_pids(folder: Path) -> list[int]:
    """The slots of the job whose state is below a folder: their command line has its location."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if _SLOT in command and f"{folder}/".encode() in command:
            found.append(int(process.name))
    return sorted(found)


class SlotKiller:
    """Kills a slot of a job after every batch but the last ones, at a random moment of the next batch.

    No more than one per batch: Spark gives up on a task that fails four times.
    """

    def __init__(self, folder: Path, seed: int, longest_delay: float, batches: int) -> None:
        """Wait up to `longest_delay` seconds before a kill; stop after so many batches."""
        self._folder = folder
        self._chance = random.Random(seed)
        self._longest = longest_delay
        self._batches = batches
        self.kills = 0

    def after_batch(self, batch: int) -> None:
        """Kill one soon."""
        if batch < self._batches:
            timer = threading.Timer(self._chance.random() * self._longest, self.kill)
            timer.daemon = True
            timer.start()

    def kill(self) -> None:
        """Kill one now."""
        pids = slot_pids(self._folder)
        if pids:
            try:
                os.kill(self._chance.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills += 1


def run_killed(files: Path, folder: Path, queries: Sequence[str], batches: int) -> int:
    """Run jobs in drivers that die in their sinks, each with another parallelism, until one gets to the end.

    Returns how many were killed.
    """
    killed = 0
    for parallelism, last in ((2, batches // 3), (3, 2 * batches // 3), (1, -1)):
        arguments = [str(files), str(folder), ",".join(queries), str(parallelism), str(last)]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.nexmark.driver", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode != (0 if last < 0 else -signal.SIGKILL):
            raise RuntimeError(f"{queries}: the driver ended with {done.returncode}:\n{done.stderr[-4000:]}")
        killed += last >= 0
    return killed
