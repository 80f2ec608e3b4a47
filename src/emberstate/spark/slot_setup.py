"""`SlotSetup`: what a slot's process is told when it is started.

Thread safety: immutable.
"""

from __future__ import annotations

from emberstate.checkpoint.acknowledgement import Message
from emberstate.spark.process_watch import ProcessId


class SlotSetup(Message, frozen=True, kw_only=True):
    """Who the slot is, and whom it belongs to."""

    #: How the slot is called in messages.
    place: str
    token: str
    incarnation: int
    idle_seconds: float
    stuck_seconds: float
    #: `sys.path` of the worker that started it.
    path: list[str]
    #: The variable PYTHONPATH there.
    python_path: str | None
    #: Processes with which it ends.
    watched: list[ProcessId]
    #: File descriptors: its socket, which is bound, and the log.
    listener: int
    log: int
