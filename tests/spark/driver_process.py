"""A driver in a process and a session of its own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE
from tests.spark.spark_session import MARK, ROOT, check_nothing_left, environment, marked_pids, wait_for


class Driver:
    """Runs `killed_driver`, or another module, on what is below a directory."""

    def __init__(self, root: Path, *arguments: str, module: str = "tests.spark.killed_driver") -> None:
        self.temporary = root / "temporary"
        self.temporary.mkdir(exist_ok=True)
        given = environment(self.temporary)
        self.mark = given[MARK]
        self._log = root / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(root), *arguments],
                cwd=ROOT, env={**os.environ, **given}, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> int:
        """Its exit status, once nothing is left of it."""
        code = self.process.wait(2 * PATIENCE)
        wait_for(lambda: not marked_pids(self.mark), "an end of all that came of the driver")
        check_nothing_left(self.mark, self.temporary)
        return code

    def printed(self) -> str:
        """What it and those before it have printed last."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-5000:]

    def kill(self) -> None:
        """End it and everything that came of it."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
