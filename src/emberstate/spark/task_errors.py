"""What went wrong in a slot, found in Spark's account of a failed job.

Spark hands on the text of a Python traceback. Its last part is the error that `run_in_slot` raised, whose message says
everything: the operator, the key, the user's own traceback.

Thread safety: pure functions.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from emberstate import errors

_RAISED: Final = re.compile(r"^(?:emberstate\.errors\.)(\w+): (.*)", re.MULTILINE | re.DOTALL)
_END: Final = re.compile(r"\n+ ?(?:\tat |SQLSTATE:|JVM stacktrace:|Driver stacktrace:|During handling of the above)")


def emberstate_error(error: BaseException, where: str) -> errors.EmberstateError | None:
    """The error of this library that a Spark job failed with; None if it was something else."""
    if isinstance(error, errors.EmberstateError):
        return error
    text = str(error)
    if "ModuleNotFoundError: No module named 'emberstate'" in text:
        return errors.LifecycleError(
            f"{where}: the Python of Spark's executors has no emberstate. Set PYSPARK_PYTHON to one that has it (in "
            f"local mode: {sys.executable}), or install it there."
        )
    found = _RAISED.search(text)
    if found is None:
        return None
    kind = getattr(errors, found[1], None)
    if not isinstance(kind, type) or not issubclass(kind, errors.EmberstateError):
        return None
    message = _END.split(found[2], maxsplit=1)[0].rstrip()
    return kind(message)  # it says where
