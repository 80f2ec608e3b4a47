"""What is tested is what was built: hot modules of this clone, in the mode that was asked for."""

from __future__ import annotations

import filecmp
import importlib
import os
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest

import emberstate
from emberstate import _hot

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: Where setup.py builds before it copies the extension files beside their sources.
IN_PLACE = ROOT / "build" / "in-place"
#: Written by setup.py if it found no C compiler.
NOTICE_FILE = ROOT / "build" / "interpreted"


def compiler_works(folder: Path) -> bool:
    """Whether the C compiler that a build would take compiles anything."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    (folder / "probe.c").write_text("int probe(void) { return 0; }\n", encoding="utf-8")
    try:
        done = subprocess.run(
            [*shlex.split(command), "-c", "probe.c"], cwd=folder, capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def test_the_package_is_this_clone() -> None:
    """Catches: a run on another installed copy, as after a clone with its environment was moved."""
    assert emberstate.__file__ is not None
    assert Path(emberstate.__file__).parent == SOURCE / "emberstate"


@pytest.mark.parametrize("module", _hot.HOT_MODULES)
def test_mode(module: str, tmp_path: Path) -> None:
    """Catches: numbers and tests of compiled code that ran interpreted, or the other way round."""
    importlib.import_module(module)
    if _hot.interpreted_on_purpose():
        assert not _hot.is_compiled(module)
        return
    if NOTICE_FILE.exists() and not compiler_works(tmp_path):
        pytest.skip(NOTICE_FILE.read_text(encoding="utf-8").strip())
    assert _hot.is_compiled(module), f"{module} was not built: make clean build"


@pytest.mark.parametrize("module", _hot.HOT_MODULES)
def test_up_to_date(module: str) -> None:
    """Catches: an extension file that was not made from its source, or its declarations, as they are now."""
    extension = _hot.extension_file(module)
    if extension is None:
        pytest.skip("not compiled")
    built_from = IN_PLACE / "temp" / f"{module}.fingerprint"
    built = IN_PLACE / "lib" / extension.relative_to(SOURCE)

    assert built_from.read_text(encoding="utf-8").splitlines()[1] == _hot.fingerprint(module), "make build"
    assert filecmp.cmp(extension, built, shallow=False), "make clean build"


def test_sources_are_all_that_is_cimported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: declarations that are missed, so that what depends on them stays as it was compiled."""
    files = {
        "a.py": "from cython.cimports.emberstate.b import B\nfrom emberstate.z import Z",
        "a.pxd": "from emberstate.c cimport C\nfrom emberstate cimport (d,\n  e)\n"
        "cimport emberstate.f\nfrom .g cimport G",
        "b.pxd": "from libc.stdint cimport int64_t\n    from emberstate.h cimport H  # and i",
        "h.pxd": "from emberstate.a cimport A",
        **{f"{name}.pxd": "" for name in "cdefgiz"},
        **{f"{name}.py": "" for name in "bcdefghiz"},
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(_hot, "__file__", str(tmp_path / "_hot.py"))

    assert [file.name for file in _hot.sources("emberstate.a")] == [
        "a.pxd",
        "a.py",
        *(f"{n}.pxd" for n in "bcdefgh"),
    ]

    before = _hot.fingerprint("emberstate.a")
    (tmp_path / "h.pxd").write_text("cdef class H: pass", encoding="utf-8")
    assert _hot.fingerprint("emberstate.a") != before


def test_every_extension_file_is_a_hot_module() -> None:
    """Catches: the extension file of a former hot module, which Python would prefer to the source."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    files = (file.relative_to(SOURCE) for file in SOURCE.rglob(f"*{suffix}"))

    assert {".".join(file.parts).removesuffix(suffix) for file in files} <= set(_hot.HOT_MODULES)
