"""Builds the hot modules with Cython where a C compiler works, and goes on without them where none does.

The list of hot modules is `emberstate/_hot.py`'s; the same files run interpreted. Only the lack of a compiler
is forgiven: a module that Cython or the compiler refuses is a defect, and fails the build.

What was built is kept in a cache of the user (`EMBERSTATE_BUILD_CACHE`, or emberstate/extensions in the
user's cache folder), by the content it was made of: another clone, or a branch that was here before, takes it from
there. Files that no build has asked for in a month are deleted.
"""

import contextlib
import hashlib
import os
import runpy
import shutil
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError, PlatformError

SOURCE = Path("src")
HOT = runpy.run_path(str(SOURCE / "emberstate" / "_hot.py"))
NOTICE = "emberstate: no working C compiler: the hot modules run interpreted, several times slower"
#: Holds the notice if the last build was one without a compiler: the excuse of the test for compiled modules.
NOTICE_FILE = Path("build", "interpreted")


class BuildHotModules(build_ext):
    """Compiles all hot modules or, said once, none: half of them compiled would not fit together."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        self.cache = Cache()
        if self.inplace:  # `pip install -e` would build in a temporary folder, everything anew each time
            self.build_lib, self.build_temp = "build/in-place/lib", "build/in-place/temp"

    def run(self) -> None:
        super().run()
        self.remove_leftovers(Path(self.build_lib))
        if self.inplace:
            self.remove_leftovers(SOURCE)

    def build_extensions(self) -> None:
        NOTICE_FILE.parent.mkdir(exist_ok=True)
        NOTICE_FILE.unlink(missing_ok=True)
        if reason := self.reason_to_go_without():
            print(f"{NOTICE} ({reason})", flush=True)
            NOTICE_FILE.write_text(f"{NOTICE} ({reason})\n", encoding="utf-8")
            self.extensions = []
            return
        wanted = {extension.name: self.fingerprint(extension) for extension in self.extensions}
        complete = self.extensions
        self.extensions = [item for item in complete if self.force or self.built(item) != wanted[item.name]]
        if not self.force:
            self.extensions = [item for item in self.extensions if not self.fetch(item, wanted[item.name])]
        if self.extensions:
            print(f"compiling {len(self.extensions)} of {len(complete)} modules", flush=True)
            self.force = True  # what is outdated has been found: files' times must not overrule it
            for extension in self.extensions:
                self.fingerprint_file(extension).unlink(missing_ok=True)
            self.translate()
            super().build_extensions()
            for extension in self.extensions:
                self.fingerprint_file(extension).write_text(wanted[extension.name], encoding="utf-8")
                self.cache.keep(extension.name, wanted[extension.name], Path(self.get_ext_fullpath(extension.name)))
        self.extensions = complete

    def fetch(self, extension: Extension, wanted: str) -> bool:
        """Take an extension from the cache; False if it is not there."""
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.fingerprint_file(extension).parent.mkdir(parents=True, exist_ok=True)
        self.fingerprint_file(extension).unlink(missing_ok=True)
        if not self.cache.fetch(extension.name, wanted, target):
            return False
        self.fingerprint_file(extension).write_text(wanted, encoding="utf-8")
        return True

    def fingerprint(self, extension: Extension) -> str:
        """What an extension is made of: the first line stands for the tools, the second for the sources."""
        import Cython

        tools = (
            Cython.__version__,
            sys.version,
            getattr(self.compiler, "compiler_so", None),
            Path("setup.py").read_bytes(),
        )
        return f"{hashlib.sha256(repr(tools).encode()).hexdigest()}\n{HOT['fingerprint'](extension.name)}\n"

    def built(self, extension: Extension) -> str | None:
        """The fingerprint of what stands built; None if nothing does."""
        file = self.fingerprint_file(extension)
        there = file.exists() and Path(self.get_ext_fullpath(extension.name)).exists()
        return file.read_text(encoding="utf-8") if there else None

    def fingerprint_file(self, extension: Extension) -> Path:
        return Path(self.build_temp, f"{extension.name}.fingerprint")

    def reason_to_go_without(self) -> str | None:
        """What is missing to compile anything, found by building an empty module; None if nothing is."""
        try:
            import Cython  # noqa: F401
        except ImportError:
            return "Cython is not installed"
        with tempfile.TemporaryDirectory() as folder:
            probe = Path(folder, "probe.c")
            probe.write_text("#include <Python.h>\nint emberstate_probe(void) { return 0; }\n", encoding="utf-8")
            try:
                objects = self.compiler.compile([str(probe)], output_dir=folder)
                self.compiler.link_shared_object(objects, str(probe.with_suffix(".so")))
            except (CompileError, LinkError, PlatformError):
                command = getattr(self.compiler, "compiler_so", None) or ["the compiler"]
                return f"{command[0]} cannot build an empty module"
        return None

    def translate(self) -> None:
        """Python to C, by Cython."""
        from Cython.Build import cythonize

        translated = cythonize(
            self.extensions,
            build_dir="build/cython",
            include_path=[str(SOURCE)],
            # Without autotestdict a doctest counts once, compiled as interpreted.
            compiler_directives={"language_level": 3, "autotestdict": False},
            force=True,
            quiet=True,
        )
        sources = {extension.name: extension.sources for extension in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]

    def remove_leftovers(self, root: Path) -> None:
        """Delete extension files of modules not compiled any more: Python would prefer them to the source."""
        built = {root / self.get_ext_filename(extension.name) for extension in self.extensions}
        for file in (root / "emberstate").rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            if file not in built:
                file.unlink()


class Cache:
    """Extension files by what they were made of. A folder that cannot be used is an empty one."""

    MONTH = 30 * 24 * 3600

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self.folder = Path(os.environ.get("EMBERSTATE_BUILD_CACHE") or Path(home, "emberstate", "extensions"))

    def fetch(self, module: str, fingerprint: str, target: Path) -> bool:
        """Copy an extension to its place; False if there is none."""
        kept = self.file(module, fingerprint)
        try:
            shutil.copyfile(kept, target)
            kept.touch()
        except OSError:
            return False
        return True

    def keep(self, module: str, fingerprint: str, built: Path) -> None:
        """Keep what was built."""
        kept = self.file(module, fingerprint)
        part = kept.with_name(f"{kept.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, part)
            part.replace(kept)  # whole, or not at all
            for other in self.folder.iterdir():
                if other.stat().st_mtime < time.time() - self.MONTH:
                    other.unlink(missing_ok=True)

    def file(self, module: str, fingerprint: str) -> Path:
        return self.folder / f"{module}-{hashlib.sha256(fingerprint.encode()).hexdigest()[:32]}.so"


def extension(module: str) -> Extension:
    """The hot module as an extension; its source becomes C only when it is built."""
    source = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    return Extension(module, [str(source)], extra_compile_args=["-O3", "-g0"], extra_link_args=["-Wl,--strip-all"])


setup(ext_modules=[extension(module) for module in HOT["HOT_MODULES"]], cmdclass={"build_ext": BuildHotModules})
