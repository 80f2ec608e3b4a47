"""The exit codes of every command.

    0    done, no problem found
    1    a problem was found: damage, a refused restore, a difference, no such key
    2    the command was not understood
    3    it could not be done: nothing there, not readable, rejected
    70   a bug in emberstate; the traceback is shown
    130  interrupted
    141  the reader of the output has closed it
"""

from __future__ import annotations

from typing import Final

OK: Final = 0
PROBLEM: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
BUG: Final = 70
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
