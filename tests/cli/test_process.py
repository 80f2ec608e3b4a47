"""The command line as a process: exit codes, broken pipes, interrupts, what is said when something is missing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emberstate.cli.commands import doctor as doctor_module
from emberstate.cli.main import run
from tests.cli.conftest import ROOT, Run
from tests.patience import PATIENCE
from tests.storage.s3_server import BUCKET, s3_server

COMMAND = (sys.executable, "-m", "emberstate")


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start the command line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **options.pop("env", {})}
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **{"stdout": subprocess.PIPE, **options},
    )


def test_a_broken_pipe_is_quiet(location: Path) -> None:
    """Catches: a traceback, or an "Exception ignored", behind `| head`."""
    reads, writes = os.pipe()
    os.close(reads)
    process = start("checkpoints", "ls", location, stdout=writes)
    os.close(writes)
    assert process.stderr is not None and process.stderr.read() == ""
    assert process.wait(PATIENCE) == 141


def test_an_interrupt_is_quiet(location: Path, tmp_path: Path) -> None:
    """Catches: a traceback after Ctrl-C, or an exit code that says nothing of it."""
    os.mkfifo(tmp_path / "ready")
    (tmp_path / "waits.py").write_text(
        "import signal\nopen('ready', 'w').close()\nwhile True:\n    signal.pause()\n", encoding="utf-8"
    )
    # Whoever runs the tests in the background has them ignore interrupts, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start("savepoint", "restore-check", location, "--function", "waits:X", cwd=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    with (tmp_path / "ready").open():  # opens when the command is in the middle of it
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (130, "", "")


def test_exit_codes_and_tracebacks(tmp_path: Path) -> None:
    """Catches: a process that exits otherwise than the command did; a traceback that nobody asked for, or none."""
    quiet = start("checkpoints", "ls", "gs://x/y")
    out, err = quiet.communicate(timeout=PATIENCE)
    assert (quiet.returncode, out, err.count("\n")) == (3, "", 1)
    loud = start("checkpoints", "ls", "gs://x/y", env={"EMBERSTATE_TRACEBACK": "1"})
    _, err = loud.communicate(timeout=PATIENCE)
    assert loud.returncode == 3 and err.startswith("Traceback")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra(missing: str) -> None:
    """Catches: a traceback where the extra was not installed."""
    program = f"import sys; sys.modules[{missing!r}] = None\nfrom emberstate.cli.main import main; main()"
    command = [sys.executable, "-c", program, "checkpoints", "ls", "somewhere"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, check=False)
    assert done.returncode == 3
    assert done.stderr == f"emberstate: the command line needs {missing}: pip install 'emberstate[cli]'\n"


def test_help_and_usage(cli: Run) -> None:
    """Catches: a command without help; mistakes that are not explained."""
    top = cli("--help")
    assert top.code == 0 and "Exit codes: 0 all is well; 1" in " ".join(top.out.split())
    for command in (
        ["checkpoints", "ls"], ["checkpoints", "show"], ["checkpoints", "verify"], ["checkpoints", "diff"],
        ["checkpoints", "du"], ["checkpoints", "gc"], ["checkpoints", "plot"], ["state", "ls"], ["state", "get"],
        ["state", "top"], ["state", "keys"], ["state", "export"], ["state", "heatmap"], ["savepoint", "create"],
        ["savepoint", "restore-check"], ["savepoint", "rewrite"], ["savepoint", "ls"], ["savepoint", "describe"],
        ["savepoint", "rm"], ["rescale"], ["doctor"],
    ):  # fmt: skip
        found = cli(*command, "--help")
        assert found.code == 0 and "--json" in found.out, command
        if command != ["doctor"]:
            assert cli(*command).code == 2, command
    assert cli("nonsense").code == 2
    assert cli("--version").out.startswith("emberstate, version ")


def test_a_bug_is_called_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches: a bug whose exit code looks like a finding."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(doctor_module, "_machine", fail)
    assert run(["doctor"]) == 70
    assert "this is a bug in emberstate" in capsys.readouterr().err


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_goes_to_a_terminal_only(
    own_location: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: long work that shows nothing; progress among results, or in a log."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    for number, command in enumerate(
        (
            "state top {location}",
            "savepoint create {location} s{number}",
            "savepoint rewrite {location} s{number} --to-name r{number}",
            "state export {location} --to {tmp_path}/{number}",
            "checkpoints verify {location}",
        )
    ):
        for terminal in (None, Terminal()):
            made = number - 1 if "rewrite" in command else number
            words = command.format(location=own_location, tmp_path=tmp_path, number=f"{made}{terminal is None}").split()
            with monkeypatch.context() as patched:
                if terminal is not None:
                    patched.setattr(sys, "stderr", terminal)
                assert run(words) == 0
            found = capsys.readouterr()
            assert found.err == "" and "%" not in found.out.replace(" %", ""), command
            assert terminal is None or "100%" in terminal.getvalue(), command


def test_s3(cli: Run, monkeypatch: pytest.MonkeyPatch, location: Path) -> None:
    """Catches: an object store that the command line cannot reach with boto3's own settings."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        copied = cli("savepoint", "create", location, "one", "--to", f"s3://{BUCKET}/cards")
        assert (copied.code, copied.err) == (0, "")
        found = cli("checkpoints", "ls", f"s3://{BUCKET}/cards", "--json").json
        assert [item["name"] for item in found["savepoints"]] == ["one"]
        assert cli("state", "get", f"s3://{BUCKET}/cards", "best", "ann", "--savepoint", "one").code == 0
        assert cli("checkpoints", "verify", f"s3://{BUCKET}/cards", "--all").code == 0
