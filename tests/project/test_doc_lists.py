"""Pages that list things list all of them: public names, a pipeline's methods, progress, exceptions."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

import emberstate as es
from emberstate import errors
from emberstate.spark import WindowedStage
from emberstate.spark.driver.stage_run import slot_seconds
from tests.project.markdown import ROOT, documents, links

REFERENCE = ROOT / "docs" / "reference.md"
OPERATIONS = ROOT / "docs" / "operations.md"
EXCEPTIONS = {
    name: value for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)
}


def section(file: Path, title: str) -> str:
    """The text below a heading, up to the next one of any level."""
    text = file.read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"{file.name} has no section {title!r}"
    return found[1]


def first_cells(text: str) -> list[str]:
    """What stands as code in the first cells of a table's rows."""
    cells = [cell for cell in re.findall(r"^\| (.*?) \|", text, re.MULTILINE) if cell.startswith("`")]
    return [name for cell in cells for name in re.findall(r"`(\w+)", cell)]


def test_reference_has_all_public_names() -> None:
    """Catches: a public name that was added, removed or moved, and the reference was not told."""
    text = REFERENCE.read_text(encoding="utf-8")
    found = re.findall(r"^\| \[`(\w+)`\]\(\.\./src/(\S+)\.py\) \| \S", text, re.MULTILINE)
    listed = {name: path.replace("/", ".") for name, path in found}

    assert len(listed) == len(found), "a name is there twice"
    assert listed == {name: getattr(es, name).__module__ for name in es.__all__}


def test_reference_has_all_methods_of_a_pipeline() -> None:
    """Catches: a method of Pipeline that nobody can find; an argument that is not there any more."""
    text = section(REFERENCE, "Methods of Pipeline")
    public = {name for name in vars(es.Pipeline) if not name.startswith("_")}

    assert set(first_cells(text)) == public | {"Pipeline"}
    for name, arguments in re.findall(r"^\| `(\w+)\((.*?)\)` \|", text, re.MULTILINE):
        function = es.Pipeline.__init__ if name == "Pipeline" else getattr(es.Pipeline, name)
        taken = set(inspect.signature(function).parameters) - {"self"}
        shown = {part.split("=")[0].strip("* ") for part in arguments.split(",")} - {""}
        aside = {"function"} if name in ("sink", "side_sink", "listener") else set()  # called by what it is
        assert shown - aside <= taken, name
        assert len(shown) == len(taken), f"{name}: {taken ^ shown}"


def test_reference_has_what_ctx_has() -> None:
    """Catches: a member of ctx that is called otherwise by now."""
    listed = first_cells(section(REFERENCE, "Members of ctx"))

    assert len(listed) > 10
    assert [name for name in listed if not hasattr(es.FunctionContext, name)] == []


def test_operations_has_all_of_progress() -> None:
    """Catches: a number that is reported and explained nowhere."""
    text = section(OPERATIONS, "What to watch")
    listed = first_cells(text)

    fields = {field.name for field in dataclasses.fields(es.Progress)} - {"pipeline"}
    parts = {*slot_seconds([]), "commit", "sink", "background"}
    assert set(listed) == fields | parts


def test_operations_has_all_exceptions() -> None:
    """Catches: an exception that nobody on call can look up; an entry for one that is gone."""
    text = OPERATIONS.read_text(encoding="utf-8").partition("## Troubleshooting")[2]

    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(EXCEPTIONS)


def test_operations_has_all_attributes_of_exceptions() -> None:
    """Catches: an attribute that nobody on call knows of; one that is called otherwise by now."""
    sentence = section(OPERATIONS, "EmberstateError").partition("does not apply:")[2]
    listed = re.findall(r"`(\w+)`", sentence)

    assert listed == list(errors.Place.__annotations__)
    assert all(hasattr(errors.EmberstateError, name) for name in listed)


@pytest.mark.parametrize("name", sorted(set(EXCEPTIONS) - {"EmberstateError"}))
def test_entry_of_an_exception(name: str) -> None:
    """Catches: an entry that names another built-in, or that says what happened and not what to do."""
    also, *rest = section(OPERATIONS, name).strip().split("\n\n")
    built_in = re.match(r"Also an? `(\w+)`\. \S", also)

    assert built_in is not None
    assert issubclass(EXCEPTIONS[name], getattr(builtins, built_in[1]))
    assert rest, "what to do?"


def test_every_page_is_found_from_the_index() -> None:
    """Catches: a page that no link leads to from the index of the documentation."""
    index = ROOT / "docs" / "README.md"
    reached, waiting = set[Path](), [index]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text(encoding="utf-8"))]
        waiting += [one for one in targets if one.suffix == ".md" and one.is_file() and one not in reached]
    assert [file for file in documents() if (ROOT / "docs") in file.parents and file not in reached] == []


def test_reference_has_all_methods_of_a_windowed_stage() -> None:
    """Catches: a way to end a window stage, or an argument of one, that nobody can find."""
    text = section(REFERENCE, "Methods of WindowedStage")
    shown = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", text, re.MULTILINE))

    functions = {name for name, one in vars(WindowedStage).items() if inspect.isfunction(one)}
    assert set(shown) == {name for name in functions if not name.startswith("_")}
    for name, arguments in shown.items():
        taken = list(inspect.signature(getattr(WindowedStage, name)).parameters)[1:]
        assert arguments.replace("*, ", "").replace("**", "").split(", ") == taken
