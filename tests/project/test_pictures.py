"""The pictures in the documentation are up to date, and the picture of the house is that of the source."""

from __future__ import annotations

import re

from tools import house, pictures

from tests.project.markdown import ROOT
from tests.project.module_graph import module_graph

GRAPH = module_graph(ROOT / "src")


def test_pictures_are_up_to_date() -> None:
    """Catches: a picture of a house that was rebuilt since."""
    assert pictures.outdated() == [], "run python -m tools.pictures"


def test_the_house_is_checked_against_the_imports() -> None:
    """Catches: a check that never objects: to a new room, to one that is gone, to an arrow that no import backs."""
    assert house.objections(GRAPH) == []
    added = {**GRAPH, "emberstate.heap.attic": frozenset[str](), "emberstate.heap.attic.box": frozenset[str]()}
    assert house.objections(added) == ["heap.attic is in the source and not in the picture"]
    without = {name: imported for name, imported in GRAPH.items() if not name.startswith("emberstate.heap.loading")}
    assert "heap.loading is in the picture and not in the source" in house.objections(without)
    apart = {**GRAPH, **{name: frozenset[str]() for name in GRAPH if name.startswith("emberstate.spark")}}
    assert "spark.plan and spark.driver do not import each other" in house.objections(apart)


def test_the_page_has_all_rooms() -> None:
    """Catches: a room whose purpose is written nowhere."""
    text = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    listed = {name.replace("/", ".") for name in re.findall(r"^\| `([\w/]+)` \| \S", text, re.MULTILINE)}

    assert listed == house.rooms(GRAPH)
