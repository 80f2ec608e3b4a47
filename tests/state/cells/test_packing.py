"""The declarations of `packing` for C are those of its Python code."""

from __future__ import annotations

import re
from pathlib import Path

from emberstate.state.cells import packing


def test_kinds_in_both_files() -> None:
    """Catches: a kind of column that compiled code packs as another one."""
    declared = (Path(packing.__file__).parent / "packing.pxd").read_text(encoding="utf-8")
    numbers = {name: int(number) for name, number in re.findall(r"^    AS_(\w+) = (\d+)$", declared, re.MULTILINE)}
    names = {"str": "STR_OBJECT"}
    assert numbers == {names.get(kind, kind.upper()): number for kind, number in packing.KINDS.items()}
