"""Builds the hot modules with Cython where a C compiler is there, and goes on without them where none is.

The list of hot modules is `emberstate/_hot.py`'s; the same files run interpreted.
"""

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
HOT_MODULES = runpy.run_path(str(SOURCE / "emberstate" / "_hot.py"))["HOT_MODULES"]
NOTICE = "emberstate: no working C compiler: the hot modules run interpreted, several times slower"


class OptionalBuildExt(build_ext):
    """Compiles all hot modules or, said once, none: half of them compiled would not fit together."""

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            print(f"{NOTICE} ({type(error).__name__}: {error})")
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


def extensions() -> list[Extension]:
    """The hot modules as C extensions, translated by Cython."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        print(f"{NOTICE} (Cython is not installed)")
        return []
    sources = [
        Extension(name, [str(SOURCE / Path(*name.split(".")).with_suffix(".py"))], extra_compile_args=["-O3"])
        for name in HOT_MODULES
    ]
    built: list[Extension] = cythonize(
        sources, build_dir="build/cython", language_level=3, include_path=[str(SOURCE)], quiet=True
    )
    return built


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuildExt})
