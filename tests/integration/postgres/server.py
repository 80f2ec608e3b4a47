"""A PostgreSQL server for tests. It runs as another user than root, which it refuses."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.integration import find

from tests.integration.processes import free_ports, kill_server, start_server
from tests.patience import PATIENCE


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The connection string of a server, which is ended afterwards; skips the test if there is none to start."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed: run `make integration`")
    initdb = find("postgresql")
    if initdb is None:
        pytest.skip("postgresql is not installed: run `make integration` as root")
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    folder = Path(f"/tmp/emberstate-postgres-{os.getpid()}")  # its user cannot enter pytest's own
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    try:
        data = str(folder / "data")
        made = [str(initdb), "-D", data, "-U", "owner", "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run(made, check=True, capture_output=True, cwd=folder, **user)
        [port] = free_ports(1)
        options = ["-D", data, "-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1", "-F"]
        process = start_server([str(initdb.with_name("postgres")), *options], folder / "log", cwd=folder, **user)
        try:
            found = f"host=127.0.0.1 port={port} user=owner dbname=postgres"
            deadline = time.monotonic() + PATIENCE
            while True:
                with contextlib.suppress(psycopg.OperationalError):
                    psycopg.connect(found).close()
                    break
                assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            yield found
        finally:
            kill_server(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
