"""`emberstate ui` as a process."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.patience import PATIENCE


def test_the_command_prints_its_address_serves_and_ends(made: Path) -> None:
    """Catches: an address that is wrong or stays in a buffer; Ctrl-C that is an error, or leaves the process behind."""
    command = [sys.executable, "-m", "emberstate", "ui", str(made), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = urlsplit(process.stdout.readline().strip())
            connection = http.client.HTTPConnection(address.netloc, timeout=PATIENCE)
            connection.request("GET", "/job/0/checkpoints")
            answer = connection.getresponse()
            assert (answer.status, b"checkpoint" in answer.read()) == (200, True)
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "Traceback" in errors) == (0, False)
