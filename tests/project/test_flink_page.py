"""The page about Flink's heap state: its names are public and where it says, and its two languages say the same.

`test_doc_code` runs its code and compares its pictures; `test_docs` follows its links.
"""

from __future__ import annotations

import importlib
import re

import pytest

from tests.project.markdown import ROOT, blocks, links, prose

PAGES = [ROOT / "docs" / "flink.md", ROOT / "docs" / "flink.zh.md"]
ENGLISH, CHINESE = (page.read_text(encoding="utf-8") for page in PAGES)

#: What every concept has, in either language.
PARTS = ["Flink:", "Here:", "Test:", "Difference:"], ["Flink：", "本项目：", "测试：", "差异："]

#: What Flink's design names and we have under the same name, by the package that exports it.
NAMES = {
    "emberstate": [
        "FsStateBackend",
        "HeapKeyedStateBackend",
        "ListState",
        "MapState",
        "MemoryStateBackend",
        "RocksDBStateBackend",
        "ValueState",
    ],
    "emberstate.checkpoint": ["FsStateBackend", "MemoryStateBackend", "RocksDBStateBackend", "StateBackend"],
    "emberstate.heap": [
        "CopyOnWriteStateMap",
        "CopyOnWriteStateMapSnapshot",
        "CopyOnWriteStateTable",
        "HeapKeyedStateBackend",
        "HeapListState",
        "HeapMapState",
        "HeapValueState",
        "NestedMapsStateTable",
        "NestedStateMap",
        "StateMap",
        "StateMapEntry",
        "StateTable",
    ],
    "emberstate.rocksdb": ["RocksDBKeyedStateBackend", "RocksDBMapState"],
    "emberstate.state": [
        "ImmutableMapState",
        "InternalMapState",
        "KeyedStateBackend",
        "ListState",
        "MapState",
        "TtlMapState",
        "UserFacingMapState",
        "ValueState",
    ],
}


@pytest.mark.parametrize("package", NAMES)
def test_names_are_public(package: str) -> None:
    """Catches: a class of Flink's design that has no stable place to be imported from."""
    module = importlib.import_module(package)
    for name in NAMES[package]:
        assert name in module.__all__
        assert getattr(module, name).__name__ in (name, f"Abstract{name}")  # any KeyedStateBackend is its base's


@pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=["en", "zh"])
def test_every_name_is_on_the_page(text: str) -> None:
    """Catches: a concept of Flink's that the page leaves out."""
    assert [name for names in NAMES.values() for name in names if f"`{name}`" not in text] == []


def elsewhere(text: str) -> list[str]:
    """The names that a page links to a file which does not define them."""
    found = re.findall(r"\[`(\w+)`\]\(([^)]+)\)", text)
    assert found
    wrong = []
    for name, target in found:
        source = (PAGES[0].parent / target).read_text(encoding="utf-8")
        if not re.search(rf"^ *(class|def) {name}\b|^{name} = ", source, re.MULTILINE):
            wrong.append(name)
    return wrong


def test_names_are_in_the_files_they_link_to() -> None:
    """Catches: a class or a test that was moved or renamed, on a page that still links to its old file."""
    assert elsewhere(ENGLISH) == []
    assert elsewhere("[`NoSuchState`](../src/emberstate/state/states.py)") == ["NoSuchState"]


@pytest.mark.parametrize(("text", "parts"), [(ENGLISH, PARTS[0]), (CHINESE, PARTS[1])], ids=["en", "zh"])
def test_every_concept_is_complete(text: str, parts: list[str]) -> None:
    """Catches: a concept without a class, a test or a word on where ours differs."""
    concepts = re.split(r"^### ", prose(text), flags=re.MULTILINE)[1:]

    assert len(concepts) > 20
    for concept in concepts:
        assert re.findall(r"^- \*\*(.+?)\*\*", concept, re.MULTILINE) == parts, concept.partition("\n")[0]


def test_both_languages_say_the_same() -> None:
    """Catches: a section, a picture or a link that one of the two has and the other has not."""
    levels, pictures, targets = [], [], []
    for text in (ENGLISH, CHINESE):
        levels.append(re.findall(r"^(#+) ", prose(text), re.MULTILINE))
        pictures.append([(block.info, block.lines) for block in blocks(text)])
        targets.append([link for link in links(text) if link not in ("flink.md", "flink.zh.md")])

    assert levels[0] == levels[1]
    assert pictures[0] == pictures[1]
    assert targets[0] == targets[1]
