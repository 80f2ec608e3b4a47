"""Which modules are compiled, and whether they are.

Hot modules are ordinary Python files that Cython compiles as they are. Compiled or interpreted, they behave alike and
pass the same tests; interpreted they are several times slower, so a fallback is said once, as a log line. Set
EMBERSTATE_INTERPRETED=1 to run them interpreted on purpose, next to their extension files.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

HOT_MODULES = (
    "emberstate.heap.state_map_entry",
    "emberstate.heap.page_table",
    "emberstate.heap.before_images",
    "emberstate.heap.snapshots",
    "emberstate.heap.value_kind",
    "emberstate.heap.state_map",
    "emberstate.heap.copy_on_write_state_map",
    "emberstate.heap.copy_on_write_roll_back",
    "emberstate.heap.copy_on_write_state_map_snapshot",
    "emberstate.heap.list_value",
    "emberstate.heap.map_value",
    "emberstate.state.key_context",
    "emberstate.state.internal_states",
    "emberstate.state.user_facing_states",
    "emberstate.state.user_facing_map_state",
    "emberstate.heap.state_table",
    "emberstate.heap.heap_states",
    "emberstate.heap.heap_map_state",
)

SWITCH = "EMBERSTATE_INTERPRETED"


def interpreted_on_purpose() -> bool:
    """Whether the environment asks for interpreted hot modules."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def extension_file(module: str) -> Path | None:
    """Where the extension file of a hot module is, or None if it was not built."""
    stem = Path(__file__).parent.joinpath(*module.split(".")[1:])
    for suffix in EXTENSION_SUFFIXES:
        file = stem.with_name(stem.name + suffix)
        if file.exists():
            return file
    return None


def is_compiled(module: str) -> bool:
    """Whether a hot module, which must be imported, was loaded from its extension file."""
    file = getattr(sys.modules[module], "__file__", None) or ""
    return file.endswith(tuple(EXTENSION_SUFFIXES))


class _SourceFinder:
    """Finds the hot modules' Python files even where extension files, which would win, stand beside them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in HOT_MODULES:
            return None
        source = Path(__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".py")
        return importlib.util.spec_from_file_location(name, source)


def choose() -> None:
    """Decide, before the first hot module is imported, which files they come from; called once by the package.

    All of them or none: a compiled module cannot use an interpreted one.
    """
    missing = [name for name in HOT_MODULES if extension_file(name) is None]
    if missing and not interpreted_on_purpose():
        logging.getLogger("emberstate").warning(
            "The hot modules run interpreted, several times slower: %d of %d have no extension file (%s, ...). "
            "Install a C compiler and reinstall emberstate, or set %s=1 to silence this.",
            len(missing),
            len(HOT_MODULES),
            missing[0],
            SWITCH,
        )
    if missing or interpreted_on_purpose():
        sys.meta_path.insert(0, _SourceFinder)
