"""Loads a user's function by name, and finds the states that it declares.

This imports its module and calls its `open`, as a pipeline does: the only code of the job that a command runs.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from emberstate.checkpoint.files.bindings import StateBinding, bindings_of
from emberstate.checkpoint.manifest.model import Operator
from emberstate.cli.console import Refused
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator


def load_function(name: str) -> ProcessFunction:
    """The function that `module:attribute` names: an object, or a class or callable that returns one without arguments.

    The current directory is searched first, as by `python -m`.
    """
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise Refused(f"{name!r} names no function: write module:Class, or module:object")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        if not isinstance(found, ProcessFunction) and callable(found):
            found = found()
    except Exception as error:
        raise Refused(
            f"{name} could not be loaded: {type(error).__name__}: {error}. A class is called without arguments; if it "
            f"needs some, name an object, or a function that makes one"
        ) from error
    if not isinstance(found, ProcessFunction):
        raise Refused(f"{name}: expected a KeyedProcessFunction or the like, got {found!r:.100}")
    return found


def declared_states(function: ProcessFunction, operator: Operator) -> tuple[list[StateBinding], list[StateBinding]]:
    """The keyed states and the broadcast states that a function declares, for the keys of a stored operator."""
    backend = HeapKeyedStateBackend(KeySchema(operator.key_schema), max_parallelism=operator.max_parallelism)
    template = KeyedOperator(operator.name, function, backend)
    template.open()
    try:
        side = template.broadcast_backend
        return bindings_of(backend), [] if side is None else bindings_of(side)
    finally:
        template.close()
