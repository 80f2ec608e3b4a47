"""The process of one slot: `python -m emberstate.spark.slot.process`, started by `spawn` only.

It reads its setup from stdin, so that no secret is in its arguments or environment. The main thread listens
(`SlotServer`), one other thread owns the state and runs the function (`SlotRunner`).

What it prints until it listens goes to the worker that started it, for an error message; afterwards to the executor's
log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import logging
import os
import signal
import socket
import sys
import threading
from typing import Final

from emberstate.spark.slot.mailbox import SlotMailbox
from emberstate.spark.slot.messages import SlotSetup
from emberstate.spark.slot.process_watch import ProcessWatch
from emberstate.spark.slot.progress import ProgressPage
from emberstate.spark.slot.runner import SlotRunner
from emberstate.spark.slot.server import SlotServer

_log = logging.getLogger("emberstate.spark")

#: How long the function may go on when the process is to end, in seconds.
GRACE_SECONDS: Final = 3.0
#: A pause of this length is used to collect garbage, in seconds.
PAUSE_SECONDS: Final = 3.0


def main() -> int:
    """Run the slot until there is a reason to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    faulthandler.enable()
    setup = SlotSetup.from_bytes(sys.stdin.buffer.read())
    _restore_paths(setup)
    runner = SlotRunner(setup.name)
    page = ProgressPage(runner.progress)
    listener = socket.socket(fileno=setup.listener)
    server = SlotServer(
        listener,
        ProcessWatch(setup.watched),
        setup.token,
        lambda: setup.idle_seconds if runner.idle_seconds is None else runner.idle_seconds,
        setup.stuck_seconds,
        page,
    )
    mailbox = SlotMailbox(setup.incarnation, setup.name, server.wake)
    for part in (server, mailbox):  # a child that user code forks must hold neither the name nor a connection
        os.register_at_fork(after_in_child=part.abandon)
    owner = threading.Thread(target=_own, args=(runner, mailbox), name="slot owner", daemon=True)
    owner.start()
    page.owner = owner.ident
    _print_to(setup.log)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s %(levelname)s {setup.name}: %(message)s"
    )
    _log.info("Started as process %d for incarnation %d.", os.getpid(), setup.incarnation)
    reason = server.serve(mailbox)
    mailbox.close(reason)
    owner.join(GRACE_SECONDS)
    if owner.is_alive():
        _log.warning("Ended: %s. The function did not return within %g s.", reason, GRACE_SECONDS)
        return 1
    _log.info("Ended: %s.", reason)
    return 0


def _own(runner: SlotRunner, mailbox: SlotMailbox) -> None:
    """The owner's thread."""
    try:
        while not mailbox.closed:
            connection = mailbox.take(PAUSE_SECONDS)
            if connection is None:
                runner.when_idle()
                continue
            runner.serve(connection)
            mailbox.done()
    except BaseException:
        _log.exception("The owner's thread failed; the process ends.")
        logging.shutdown()
        os._exit(70)
    finally:
        runner.close()


def _print_to(log: int) -> None:
    """Send stderr and stdout to the log, with what was printed so far; stdin becomes empty."""
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, io.TextIOWrapper)
        stream.reconfigure(line_buffering=True)
    with contextlib.suppress(OSError):
        printed = os.pread(2, 1 << 20, 0)
        if printed:
            os.write(log, printed)
    os.dup2(log, 2)
    os.dup2(log, 1)
    os.close(log)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)


def _restore_paths(setup: SlotSetup) -> None:
    """Import modules from where the worker does; processes that user code starts get the worker's PYTHONPATH."""
    sys.path[:] = setup.path
    os.environ.pop("PYTHONPATH", None)
    if setup.python_path is not None:
        os.environ["PYTHONPATH"] = setup.python_path


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)  # the user's threads, or a function that does not return, must not hold the process
