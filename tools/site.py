"""Builds the documentation as a site in build/site: `make docs`.

The pages are written for a code host: they link to source files, and their code blocks carry marks for the tests. This
makes pages in build/pages that any generator of sites can read, and has mkdocs build them. In them a link to a file of
the project that is no page leads to a copy of that file; a link to a directory is plain text.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"

#: Pages beside `docs` that are part of the site.
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md")
#: Within the site, copies of files that pages link to.
COPIES = "files"

_FENCE = re.compile(r"^( *)(`{3,})(\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def place(file: Path) -> Path | None:
    """Where in the site a file of the project is; None for a directory."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS)
    if file.is_dir():
        return None
    name = file.relative_to(ROOT)
    return name if str(name) in BESIDE else Path(COPIES) / f"{name}.txt"


def prepared(text: str, page: Path) -> tuple[str, set[Path]]:
    """The text of a page of the project as the site has it, and the files that it needs copies of."""
    copies = set()
    here = place(page)
    assert here is not None

    def link(found: re.Match[str]) -> str:
        label, target = found[1], found[2]
        path, hash_sign, fragment = target.partition("#")
        file = (page.parent / path).resolve()
        if not path or not file.exists():
            return found[0]
        there = place(file)
        if there is None:
            return label
        if there.parts[0] == COPIES:
            copies.add(file)
        return f"[{label}]({there_from(here, there)}{hash_sign}{fragment})"

    pieces = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    pieces[::2] = [_LINK.sub(link, piece) for piece in pieces[::2]]
    return _FENCE.sub(r"\1\2\3", "".join(pieces)), copies


def there_from(here: Path, there: Path) -> str:
    """The link from one page of the site to another."""
    return "/".join([*[".."] * (len(here.parts) - 1), *there.parts])


def prepare() -> None:
    """Write build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    copies = set()
    for page in [*DOCS.rglob("*"), *(ROOT / name for name in BESIDE)]:
        where = place(page)
        if page.is_dir() or where is None:
            continue
        target = PAGES / where
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text, needed = prepared(page.read_text(encoding="utf-8"), page)
            target.write_text(text, encoding="utf-8")
            copies |= needed
        else:
            shutil.copyfile(page, target)
    for file in copies:
        where = place(file)
        assert where is not None
        (PAGES / where).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, PAGES / where)


def main(arguments: list[str]) -> int:
    """Prepare the pages and build the site; options go to mkdocs."""
    prepare()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
