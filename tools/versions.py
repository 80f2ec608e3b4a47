"""Runs some of the suite on other versions of PySpark: `python -m tools.versions 4.1.4 4.2.1`.

Each version is installed into a folder of its own below build/versions, without its dependencies, and stands before the
one of the virtual environment. What was tried, and with which result, is a table in docs/versions.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Private names of Spark; batches and their redelivery.
TESTS = ("tests/spark/test_private_names.py", "tests/spark/test_pipeline_redelivery.py")


def install(version: str) -> Path:
    """Install a version of PySpark, once; return its folder."""
    folder = ROOT / "build" / "versions" / version
    if not (folder / "pyspark").exists():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
        subprocess.run([*pip, "--no-deps", "--no-compile", "--target", str(folder), f"pyspark=={version}"], check=True)
    return folder


def run(version: str) -> bool:
    """Run the tests on a version; whether they passed."""
    environment = {**os.environ, "PYTHONPATH": str(install(version))}
    print(f"\n== PySpark {version}", flush=True)
    found = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environment, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    if found.stdout.strip() != version:
        raise SystemExit(f"expected PySpark {version}, got {found.stdout.strip()}")
    done = subprocess.run([sys.executable, "-m", "pytest", *TESTS], cwd=ROOT, env=environment, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    failed = [version for version in sys.argv[1:] if not run(version)]
    sys.exit(f"Failed on PySpark {', '.join(failed)}" if failed else 0)
