"""Every page, as HTML, as the part that changes, and as JSON; hostile values; damage."""

from __future__ import annotations

import html
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from emberstate.ui.pages import PAGES
from tests.patience import PATIENCE
from tests.ui.conftest import HIDDEN, LONG, SCRIPT, Client

#: Elements that a browser closes by itself.
VOID = {"meta", "link", "input", "img", "br"}


class Elements(HTMLParser):
    """The elements of a page, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.events: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.events += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.open


def scripts(text: str) -> int:
    """How many scripts a page has; it must be well-formed, without inline styles and handlers."""
    elements = Elements(text)
    assert elements.events == []
    return elements.names.count("script")


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_every_page_in_every_form(made: Path, client: Client, page: str) -> None:
    """Catches: a page that fails, or is not well-formed; a part that is a whole page; JSON that is not the page's."""
    web = client(made)
    whole = web.get(f"/job/0/{page}")
    part = web.get(f"/job/0/{page}", headers={"X-Part": "1"})
    data = web.get(f"/job/0/{page}.json")

    assert (whole.status_code, part.status_code, data.status_code) == (200, 200, 200)
    assert scripts(whole.text) >= 1
    assert scripts(part.text) == 0 and "<html" not in part.text
    assert data.json()["job"]["job"] == "cards"


def test_the_overview_has_every_location(made: Path, tmp_path: Path, client: Client) -> None:
    """Catches: one location that cannot be read hiding the others; a mistyped location without a word."""
    web = client(made, tmp_path / "nothing")
    jobs = web.get("/index.json").json()["jobs"]

    assert [(job["job"], job["checkpoints"], job["savepoints"], job["pinned"]) for job in jobs] == [
        ("cards", 3, 1, 1),
        (None, 0, 0, 0),
    ]
    assert jobs[0]["newest"]["number"] == 4
    assert "does not exist" in jobs[1]["problem"]
    assert "does not exist" in web.get("/").text


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_an_empty_location_says_so_on_every_page(tmp_path: Path, client: Client, page: str) -> None:
    """Catches: a page over a job that has not started that fails with a bug."""
    answer = client(tmp_path / "nothing").get(f"/job/0/{page}")

    assert answer.status_code in (200, 404)
    assert "does not exist" in answer.text


def test_checkpoints_savepoints_pins_and_sizes(made: Path, client: Client) -> None:
    """Catches: sizes that are not those of the command line; a savepoint or a pin that is not shown."""
    data = client(made).get("/job/0/checkpoints.json").json()

    assert [item["number"] for item in data["checkpoints"]] == [4, 3, 2]
    assert [item["name"] for item in data["savepoints"]] == ["monday"]
    assert [(item["number"], item["reason"]) for item in data["pins"]] == [(4, f"because {SCRIPT}")]
    assert data["retained"]["bytes"] == sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    assert data["checkpoints"][0]["stored_bytes"] == sum(
        slot["stored_bytes"]
        for operator in client(made).get("/job/0/checkpoint.json").json()["operators"]
        for slot in operator["slots"]
    )


def counted(web: Any, page: str) -> Any:
    """The JSON of a page once its counts are there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        data = web.get(f"/job/0/{page}.json").json()
        if data["count"]["checkpoint"] is not None or time.monotonic() > deadline:
            return data


def test_states_and_key_groups_are_counted(made: Path, client: Client) -> None:
    """Catches: amounts that are not the state's; a heat strip that does not find the largest key group and key."""
    web = client(made)
    states = counted(web, "states")["operators"][0]
    amounts = {item["state"]: (item["entries"], item["values"]) for item in states["states"]}
    strip = counted(web, "groups")["operators"][0]
    hottest = strip["hottest"][0]
    chosen = web.get(f"/job/0/groups.json?operator=cards&group={hottest['group']}").json()["chosen"]

    assert amounts["last"] == (23, 23)
    assert amounts["shops"] == (23, 24)
    assert len(strip["cells"]) == 16
    assert hottest["live_bytes"] > len(LONG)
    assert max(strip["cells"], key=lambda cell: cell["shade"])["group"] == hottest["group"]
    assert [key["input"] for key in strip["keys"][:2]] == ["ann", "ann"]
    assert chosen["keys"][0]["input"] == "ann"


def test_a_key_its_history_and_a_key_that_is_not_there(made: Path, client: Client) -> None:
    """Catches: a value of another key or checkpoint; a history that misses a change or makes one up."""
    web = client(made)
    found = web.get("/job/0/key.json", params={"key": "ann", "state": "best"}).json()
    best = {item["state"]: item for item in found["found"]["states"]}["best"]
    before = web.get("/job/0/key.json", params={"key": "ann", "at": "3"}).json()
    other = web.get("/job/0/key.json", params={"key": "card-3", "state": "best"}).json()

    assert best["rows"] == [[{"text": "20.0", "length": 4}]]
    points = [(point["number"], point["change"], point["count"]) for point in found["history"]["points"]]
    assert points == [(4, "changed", 1), (3, "changed", 1), (2, "first", 0)]
    assert {item["state"]: item["rows"] for item in before["found"]["states"]}["best"][0][0]["text"] == "3.5"
    assert [point["change"] for point in other["history"]["points"]] == ["same", "same", "first"]
    assert not web.get("/job/0/key.json?key=nobody").json()["found"]["anything"]
    assert "No state has anything for this key" in web.get("/job/0/key?key=nobody").text
    assert web.get("/job/0/key.json?key=ann&at=savepoint:monday").json()["found"]["anything"]


def test_the_difference_between_two_checkpoints(made: Path, client: Client) -> None:
    """Catches: a difference of the wrong two, or counts that are not those of `emberstate checkpoints diff`."""
    web = client(made)
    newest = web.get("/job/0/diff.json").json()
    two = web.get("/job/0/diff.json?old=2&new=3").json()

    assert (newest["old"], newest["new"]) == ("3", "4")
    assert {item["state"]: (item["added"], item["changed"]) for item in newest["states"]}["best"] == (0, 1)
    assert {item["state"]: (item["added"], item["changed"]) for item in two["states"]}["best"] == (3, 0)


def test_hostile_values_are_shown_harmlessly(made: Path, client: Client) -> None:
    """Catches: a value that becomes a script; one that is sent whole, or cut without a word; hidden characters."""
    web = client(made)
    plain = scripts(web.get("/job/0/key").text)
    pages = {
        key: web.get("/job/0/key", params={"key": key, "state": "shops"}).text for key in (SCRIPT, HIDDEN, "ann")
    }
    pages |= {name: web.get(f"/job/0/{name}").text for name in ("diff", "groups", "checkpoints")}

    assert {name: scripts(text) for name, text in pages.items()} == dict.fromkeys(pages, plain)
    assert html.escape(SCRIPT) in pages[SCRIPT].replace("&#39;", "&#x27;")
    assert "a⟨U+0000⟩b⟨U+202E⟩c" in pages[HIDDEN] and "\x00" not in pages[HIDDEN]
    assert len(pages["ann"]) < 100_000 and "cut: 1\u202f000\u202f000 characters in all" in pages["ann"]
    assert "L" * 601 not in pages["ann"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("key?key=ann&at=99", 404),
        ("key?key=ann&at=../../etc/passwd", 400),
        ("key?key=ann&at=savepoint:../../etc", 400),
        ("key?key=ann&at=savepoint:other", 404),
        ("key?key=ann&operator=other", 400),
        ("key?key=ann&state=other", 400),
        ("checkpoint?at=%00", 400),
        ("groups?operator=cards&group=16", 400),
        ("groups?operator=cards&group=-1", 400),
        ("diff?old=2&new=nothing", 400),
    ],
)
def test_what_is_not_there_is_named(made: Path, client: Client, query: str, status: int) -> None:
    """Catches: a mistyped parameter that is a bug's page, or another checkpoint's."""
    answer = client(made).get(f"/job/0/{query}")

    assert answer.status_code == status
    assert re.search("(StateDeclaration|CheckpointCollected)Error", answer.text)
    scripts(answer.text)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/app.py",
        "/job/1/states",
        "/job/-1/states",
        "/job/0/../../etc/passwd",
        "/job/99999999999999999999999/states",
        "/%2e%2e/%2e%2e/etc/passwd",
    ],
)
def test_no_path_leaves_the_page(made: Path, client: Client, path: str) -> None:
    """Catches: a file of the machine, or another location, reached by a path."""
    assert client(made).get(path).status_code == 404


def test_damage_is_named_and_the_rest_is_shown(location: Path, client: Client) -> None:
    """Catches: one damaged checkpoint that hides the others; damage that is not told from an empty location."""
    (location / "checkpoints" / "000000000003" / "manifest").write_bytes(b"broken")
    for file in (location / "checkpoints").rglob("bundle-*"):
        file.write_bytes(b"broken")
    web = client(location)
    listed = web.get("/job/0/checkpoints.json").json()["checkpoints"]
    states = web.get("/job/0/key?key=ann")

    assert [bool(item["problem"]) for item in listed] == [False, True, False]
    assert "damaged" in web.get("/job/0/checkpoints").text
    assert (states.status_code, "CorruptionError" in states.text) == (500, True)
    scripts(states.text)
