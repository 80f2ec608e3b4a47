"""Runs the integration tests, for `make integration`: installs the servers and programs that they start.

These come as Debian packages, which root installs where there is apt-get, and as jars (`tools.jars`). What cannot be
had on a machine is named here, the tests that need it skip with the same name, and the summary of pytest counts them.
The tests start and stop every server themselves; the packages' own services are not started.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.jars import Unavailable, broker_jars, connector_jars

ROOT = Path(__file__).parent.parent
#: By Debian package: a file of the program that the tests start.
PROGRAMS = {
    "chromium": "/usr/bin/chromium",
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "prometheus": "/usr/bin/prometheus",
}


def find(package: str) -> Path | None:
    """The program of a Debian package, of the newest version if there are several; None if it is not installed."""
    found = sorted(Path("/").glob(PROGRAMS[package].lstrip("/")))
    return found[-1] if found else None


def install(packages: list[str]) -> str:
    """Install Debian packages without starting their services. Returns why that failed, or an empty string."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get"
    if os.geteuid() != 0:
        return f"only root may: apt-get install {' '.join(packages)}"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # 1: services stay down
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", *command], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode and command != ["update"]:  # the lists of before may do
            return (done.stderr.strip().splitlines() or ["apt-get failed"])[-1]
    return ""


def main(arguments: list[str]) -> int:
    missing = [package for package in PROGRAMS if find(package) is None]
    if missing:
        print(f"installing {', '.join(missing)}", flush=True)
        reason = install(missing)
        for package in missing:
            if find(package) is None:
                print(f"{package} cannot be installed here ({reason}): what needs it is skipped", flush=True)
    for jars in (broker_jars, connector_jars):
        try:
            jars()
        except Unavailable as failure:
            print(f"{failure}: what needs it is skipped", flush=True)
    report = ROOT / "build" / "test-results" / "integration.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *(arguments or ["tests/integration"])]
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
