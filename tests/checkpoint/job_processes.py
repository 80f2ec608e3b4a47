"""The job in a process of its own, to be killed; what it says it has committed is heard by those that live.

Processes are forked by a `Nursery`, which is warm: it has everything imported and has run a batch. So one that
dies costs what it does, not what Python does at its start.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import select
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import KILL_POINT, FaultPlan, FaultyStorage
from emberstate.testing.faulty_file_system import FaultyFileSystem
from tests.checkpoint.profiles import Oracle, check_stored, next_of, profiles_job
from tests.checkpoint.stored import SharedMemory, UnsyncedFileSystem
from tests.patience import PATIENCE

Level = Literal["storage", "file system"]
OPEN = 2**32 - 1  # what a process says first

#: Points and about how often each comes in a run of a few batches: where a kill may fall.
OPERATIONS: dict[Level, dict[str, int]] = {
    "storage": {
        "check_conditional_create": 1,
        "list": 12,
        "read": 4,
        "read_range": 16,
        "ensure_durable": 1,
        "create_if_absent": 14,
        "write_new": 14,
    },
    "file system": {
        "make_directory": 16,
        "create": 30,
        "write": 30,
        "fsync": 30,
        "close": 60,
        "link": 30,
        "unlink": 30,
        "open_directory": 50,
        "fsync_directory": 50,
    },
}


@dataclass(frozen=True)
class Run:
    """What a process is to do, and where it ends."""

    root: str
    seed: int
    parallelism: int
    until: int
    level: Level = "storage"
    #: As EMBERSTATE_KILL_POINT has it; none: it runs until it is done or somebody kills it.
    point: str | None = None
    #: Whether rewrites are waited for, so that a point is reached or not, whatever the threads do.
    steady: bool = False


def open_root(run: Run) -> Storage:
    """The storage of a run, with its kill point."""
    plan = FaultPlan({} if run.point is None else {KILL_POINT: run.point})
    if run.level == "storage":
        return FaultyStorage(LocalStorage(run.root, file_system=UnsyncedFileSystem()), plan)
    return LocalStorage(run.root, file_system=FaultyFileSystem(run.root, plan))


def work(run: Run, say: Callable[[int], object]) -> None:
    """What the process does: it says every batch after its commit."""
    job = profiles_job(open_root(run), seed=run.seed, parallelism=run.parallelism, steady=run.steady)
    job.open()
    say(OPEN)
    job.run_until(run.until, say)
    job.close()


@dataclass(frozen=True)
class End:
    """How a process ended, and what it had said."""

    said: list[int]
    code: int


def give_birth(run: Run, moment: float | None) -> End:
    """Fork a process for a run, listen to it, kill it at a moment after it has opened; how it ended."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(run, lambda batch: os.write(writes, batch.to_bytes(4, "little")))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writes)
    with open(reads, "rb", buffering=0) as ear:  # noqa: PTH123
        heard = ear.read(4)
        if moment is not None:
            select.select([], [], [], moment)  # a moment at random is the point
            os.kill(child, signal.SIGKILL)
        while more := ear.read(4096):
            heard += more
    _, status = os.waitpid(child, 0)
    said = [int.from_bytes(heard[at : at + 4], "little") for at in range(0, len(heard), 4)]
    return End(said[1:], os.waitstatus_to_exitcode(status))


def serve(control: Connection) -> None:
    """The nursery's own process."""
    job = profiles_job(SharedMemory(), seed=0)
    job.open()
    job.run_until(6)
    job.close()
    with contextlib.suppress(EOFError):
        while True:
            control.send(give_birth(*control.recv()))


class Nursery:
    """Gives birth to processes, one at a time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._control, there = context.Pipe()
        self._process = context.Process(target=serve, args=(there,))
        self._process.start()
        there.close()

    def run(self, run: Run, moment: float | None = None) -> End:
        """Run a process to its end."""
        self._control.send((run, moment))
        if not self._control.poll(PATIENCE):
            raise AssertionError(f"{run}: it hangs")
        end: End = self._control.recv()
        return end

    def close(self) -> None:
        """End the nursery."""
        self._control.close()
        self._process.join(PATIENCE)


@dataclass
class Survivor:
    """The one that lives: it sees processes on one root die, and holds what they leave to the oracle."""

    nursery: Nursery
    root: Path
    seed: int
    acknowledged: int | None = None
    kills: Counter[str] = field(default_factory=Counter)
    finished: int = 0

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.seed)
        self.plain = LocalStorage(self.root, file_system=UnsyncedFileSystem())

    def run(self, run: Run, moment: float | None = None) -> bool:
        """Run a process; whether it was killed."""
        end = self.nursery.run(run, moment)
        assert end.code in (0, -signal.SIGKILL), f"{run}: exit code {end.code}"
        for batch in end.said:
            assert batch == next_of(self.acknowledged), f"{run}: batch {batch} was committed twice, or one left out"
            self.acknowledged = batch
        killed = end.code != 0
        if killed:
            self.kills["random moment" if run.point is None else f"{run.level}: {run.point.partition(':')[0]}"] += 1
        else:
            self.finished += 1
        return killed

    def check(self) -> int | None:
        """What is stored is the end of the last batch that was acknowledged, or of the one that was under way."""
        self.acknowledged = check_stored(self.plain, self.oracle, [self.acknowledged, next_of(self.acknowledged)])
        return self.acknowledged


def random_point(chance: random.Random) -> tuple[Level, str]:
    """A level and a point, as EMBERSTATE_KILL_POINT has it."""
    level: Level = chance.choice(("storage", "file system"))
    operation, often = chance.choice(sorted(OPERATIONS[level].items()))
    return level, f"{chance.choice(('before', 'after'))}-{operation}:{chance.randint(1, often)}"


def run_killed(nursery: Nursery, folder: Path, seed: int, rounds: int = 3) -> Survivor:
    """One history: processes that are killed, at points or moments, each going on from what the one before left,
    at other parallelisms; then one that is not killed. The state is right after each."""
    chance = random.Random(seed)
    root = folder / f"root-{seed}"
    survivor = Survivor(nursery, root, seed)
    until = 0
    for _ in range(rounds):
        until = next_of(survivor.acknowledged) + chance.randint(2, 7)
        parallelism = chance.randint(1, 3)
        if chance.random() < 0.3:
            run = Run(str(root), seed, parallelism, until=until + 1000)
            survivor.run(run, moment=chance.random() ** 2 * 0.3)
        else:
            level, point = random_point(chance)
            survivor.run(Run(str(root), seed, parallelism, until, level, point))
        survivor.check()
    until = next_of(survivor.acknowledged) + 3
    survivor.run(Run(str(root), seed, chance.randint(1, 3), until))
    assert survivor.check() == until - 1
    shutil.rmtree(root)
    return survivor
