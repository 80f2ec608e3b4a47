"""Libraries that a sink needs and the package does not bring.

Thread safety: pure functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from emberstate.errors import InstallationError


def needed(module: str, extra: str) -> Any:
    """The module; raises if it is not installed.

    Raises:
        InstallationError: run pip install emberstate[extra].
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise InstallationError(
            f"es.sinks.{extra} needs {error.name}, which is not installed here. Run pip install emberstate[{extra}] on "
            f"the driver and on all executors.",
            found=error.name,
        ) from None
