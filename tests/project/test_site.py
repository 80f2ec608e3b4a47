"""The documentation as a site: it builds without a warning, has the API reference, and fetches nothing."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tools import site
from tools.doctest_fences import fenced

from tests.patience import PATIENCE
from tests.project.markdown import ROOT
from tests.project.test_exports import PUBLIC


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "tools/site.py", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.long
@pytest.mark.parametrize("package", PUBLIC)
def test_the_reference_has_all_public_names(package: str, built: Path) -> None:
    """Catches: a site that does not build strictly; a public class or function whose docstring is on no page."""
    text = (built / "api" / f"{package.rpartition('.')[2]}.html").read_text(encoding="utf-8")
    exported = {name: getattr(importlib.import_module(package), name) for name in PUBLIC[package].split()}
    names = [name for name, value in exported.items() if inspect.isclass(value) or inspect.isroutine(value)]

    assert names
    assert [name for name in names if f'id="{package}.{name}"' not in text] == []


@pytest.mark.long
def test_examples_are_shown(built: Path) -> None:
    """Catches: a reference without the examples that docstrings have."""
    assert "&gt;&gt;&gt;" in (built / "api" / "emberstate.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_parameters_are_a_table(built: Path) -> None:
    """Catches: the `Args` of a docstring run together into one paragraph."""
    text = (built / "api" / "spark.html").read_text(encoding="utf-8")
    assert "Args:" not in text and "Raises:\n" not in text
    assert re.search(r"<td>\s*<code>max_parallelism</code>\s*</td>", text)


@pytest.mark.long
def test_the_navigation_names_every_page_of_its_list(built: Path) -> None:
    """Catches: a page that the navigation hides behind the title of its section."""
    listed = re.findall(r"^ +- (?:[^:]+: )?(\S+)\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    text = (built / "house.html").read_text(encoding="utf-8")
    links = set(re.findall(r'href="([^"#]+)" class="md-nav__link"', text))
    pages = {f"{page}.html".replace("README.html", "index.html") for page in listed} - {"house.html"}
    assert len(pages) > 20 and pages <= links | {"index.html"}


@pytest.mark.long
def test_the_site_fetches_nothing(built: Path) -> None:
    """Catches: a font, script or style sheet from the network, which tells others what is read, and fails offline."""
    pages = list(built.rglob("*.html"))
    fetched = re.compile(r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+rel="(?:style|preconnect)[^>]+//')

    assert len(pages) > 40
    assert [page.name for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []
    assert (built / "search" / "search_index.json").is_file()


def test_links_and_fences_are_made_for_the_site() -> None:
    """Catches: links that lead out of the site, and marks of code blocks that a site shows as text."""
    text = (
        "[a](../README.md) [b](rescale.md#do-it) [c](../../src/emberstate/errors.py) [d](../../examples) [e](#x)\n"
        "```python cards.py spark\n[f](../../LICENSE)\n```\n[g](../../CONTRIBUTING.md) [h](https://example.org)\n"
    )
    made, copies = site.prepared(text, site.DOCS / "how-to" / "recover.md")

    assert made == (
        "[a](../README.md) [b](../how-to/rescale.md#do-it) [c](../files/src/emberstate/errors.py.txt) d [e](#x)\n"
        "```python\n[f](../../LICENSE)\n```\n[g](../CONTRIBUTING.md) [h](https://example.org)\n"
    )
    assert copies == {ROOT / "src" / "emberstate" / "errors.py"}


def test_examples_in_docstrings_are_fenced() -> None:
    """Catches: examples that a site shows as quotations of quotations."""
    text = "A.\n\n>>> f(\n... )\n1\n\nB >>> c.\n>>> d"
    assert fenced(text) == "A.\n\n```pycon\n>>> f(\n... )\n1\n```\n\nB >>> c.\n```pycon\n>>> d\n```"
