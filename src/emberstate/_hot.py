"""Which modules are compiled, from what, and whether they are.

Hot modules are ordinary Python files that Cython compiles as they are. Compiled or interpreted, they behave
alike and pass the same tests; interpreted they are several times slower, so a fallback is said once, as a log
line. Set EMBERSTATE_INTERPRETED=1 to run them interpreted on purpose, next to their extension files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

HOT_MODULES = (
    "emberstate.heap.map.entry",
    "emberstate.heap.map.page_table",
    "emberstate.heap.map.before_images",
    "emberstate.heap.map.snapshots",
    "emberstate.heap.map.value_kind",
    "emberstate.heap.map.interface",
    "emberstate.heap.map.buckets",
    "emberstate.heap.map.copy_on_write_state_map",
    "emberstate.heap.map.roll_back",
    "emberstate.heap.map.snapshot_reader",
    "emberstate.heap.states.list_value",
    "emberstate.heap.states.map_value",
    "emberstate.state.key_context",
    "emberstate.state.row_columns",
    "emberstate.state.cells.packing",
    "emberstate.state.cells.unpacking",
    "emberstate.state.cells.scalars",
    "emberstate.state.internal_states",
    "emberstate.state.handles",
    "emberstate.state.map_handle",
    "emberstate.heap.states.state_table",
    "emberstate.heap.states.states",
    "emberstate.heap.states.map_state",
    "emberstate.heap.states.timer_index",
    "emberstate.heap.columns.key_index",
    "emberstate.heap.columns.folds",
    "emberstate.heap.loading.values",
    "emberstate.heap.loading.composites",
    "emberstate.rocksdb.pair_access",
    "emberstate.rocksdb.current_entry",
    "emberstate.rocksdb.states",
    "emberstate.rocksdb.map_state",
    "emberstate.checkpoint.files.row_order",
    "emberstate.checkpoint.files.encoder",
    "emberstate.runtime.rows.row_batches",
    "emberstate.runtime.aggregates.session_merging",
    "emberstate.runtime.functions.domain_timers",
    "emberstate.runtime.functions.context",
    "emberstate.runtime.operator.loop",
)

SWITCH = "EMBERSTATE_INTERPRETED"


def interpreted_on_purpose() -> bool:
    """Whether the environment asks for interpreted hot modules."""
    return os.environ.get(SWITCH, "") not in ("", "0")


def sources(module: str) -> list[Path]:
    """The files that a hot module is compiled from: its own, and declarations that it sees by cimports."""
    found: set[Path] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        stem = Path(__file__).parent.joinpath(*name.split(".")[1:])
        # Of a module that is only cimported, the declarations count and not the code.
        for suffix in (".pxd", ".py") if name == module else (".pxd",):
            file = stem.with_suffix(suffix)
            if file.exists() and file not in found:
                found.add(file)
                pending += _cimports(file, name)
    return sorted(found)


def _cimports(file: Path, module: str) -> list[str]:
    """The package's modules that a file cimports; some names among them are of no module."""
    text = file.read_text(encoding="utf-8")
    names = re.findall(r"^\s*cimport\s+([\w.]+)", text, re.MULTILINE)
    names += re.findall(r"\bcython\.cimports\.([\w.]+)", text)
    several = re.compile(r"^\s*from\s+([\w.]+)\s+cimport\b(\s*\([^)]*|[^#\n]*)", re.MULTILINE)
    for origin, what in several.findall(text):
        origin = importlib.util.resolve_name(origin, module.rpartition(".")[0])
        names += [origin, *(f"{origin}.{name}" for name in re.findall(r"\w+", what))]
    return [name for name in names if name.startswith("emberstate.")]


def fingerprint(module: str) -> str:
    """Stands for the content of a hot module's sources; files' times would miss what an archive brings."""
    root = Path(__file__).parent
    parts = [(file.relative_to(root).as_posix(), file.read_bytes()) for file in sources(module)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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
        # In a zip file, as spark-submit --py-files takes it, there are no extension files, and the usual finder does.
        return importlib.util.spec_from_file_location(name, source) if source.exists() else None


def choose() -> None:
    """Decide, before the first hot module is imported, which files they come from; the package calls it once.

    All of them or none: a compiled module cannot use an interpreted one.
    """
    missing = [name for name in HOT_MODULES if extension_file(name) is None]
    if missing and not interpreted_on_purpose():
        logging.getLogger("emberstate").warning(
            "The hot modules run interpreted, several times slower: %d of %d have no extension file (%s, ...)"
            ". Install a C compiler and reinstall emberstate, or set %s=1 to silence this.",
            len(missing),
            len(HOT_MODULES),
            missing[0],
            SWITCH,
        )
    if missing or interpreted_on_purpose():
        sys.meta_path.insert(0, _SourceFinder)
