"""A number that tells running threads apart; here, interpreted, Python's own (`thread_number.pxd` has the C form).

It is asked for at every access to state. Compiled, it is the address of the thread's own memory where a register
holds that (CPython's `_Py_ThreadId` does the same), so asking is one instruction; elsewhere a call of the C API.
"""

from __future__ import annotations

from threading import get_ident


def thread_number() -> int:
    """The number of the calling thread; never 0."""
    return get_ident()
