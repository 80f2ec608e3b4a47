"""The web page in a real browser, on a Spark job that runs and whose slots are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from tools.integration import find

import emberstate as es
from emberstate.checkpoint.history.reader import HistoryReader
from tests.patience import PATIENCE
from tests.project.markdown import ROOT
from tests.spark.pipeline_functions import events
from tests.spark.spark_session import MARK, slot_pids, wait_for
from tests.spark.streams import Kept, Stream, at, wait_in

pytestmark = pytest.mark.spark

SHOTS = ROOT / "build" / "screenshots"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
SCRIPT = "<script>document.title='taken'</script>"
PAGES = {
    "jobs": "/", "batches": "/job/0/batches", "checkpoints": "/job/0/checkpoints", "checkpoint": "/job/0/checkpoint",
    "slots": "/job/0/slots", "states": "/job/0/states", "groups": "/job/0/groups", "keys": "/job/0/key",
    "key": "/job/0/key?key=k1&state=notes", "diff": "/job/0/diff", "errors": "/job/0/errors",
}  # fmt: skip
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


class Notes(es.KeyedProcessFunction):
    """Keeps a total, and what somebody made to be looked at."""

    total = es.value_state(int, default=0)
    notes = es.map_state(str, str)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value() + row.value)
        self.notes[f"{row.value}\x00{SCRIPT}"] = SCRIPT if row.value else "L" * 1_000_000
        yield row.key, self.total.value()


@pytest.fixture
def browser() -> Iterator[Any]:
    """Debian's Chromium."""
    program = find("chromium")
    if program is None:
        pytest.skip("chromium is not installed: run `make integration`")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: run `make integration`")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(program), args=list(FLAGS))
        yield started
        started.close()


def test_every_page_on_a_job_that_runs_with_kills(stream: Stream, browser: Any) -> None:
    """Catches: a page that a browser does not show; a script of a value that runs; a request to anywhere else; what
    the page's own security policy forbids; a page that does not follow the job."""
    given = events(120)
    progress: list[es.Progress] = []
    pipeline = stream.pipeline(parallelism=3).key_by("key").event_time("ts")
    pipeline = pipeline.process("notes", Notes(), "key string, total bigint").sink(Kept()).listener(progress.append)
    query = stream.start(pipeline, ui=True)
    for number in range(5):
        stream.add(given[number * 20 : (number + 1) * 20])
        wait_in(query, lambda: len(progress) > number, "a batch")  # noqa: B023
        if number in (1, 3):
            for pid in (mine := slot_pids(os.environ[MARK])):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not set(mine) & set(slot_pids(os.environ[MARK])), "their end")
    history = HistoryReader(stream.backend().open_storage())
    wait_for(lambda: sum(record.kind == "batch" for record in history.read().records) >= 5, "the history")

    address = pipeline.ui_address
    assert address is not None
    SHOTS.mkdir(parents=True, exist_ok=True)
    seen = _look(browser, address)
    assert {name: found for name, found in seen.items() if found["problems"]} == {}
    assert {status for found in seen.values() for status in found["statuses"]} == {200}
    assert {host for found in seen.values() for host in found["hosts"]} == {urlsplit(address).netloc}
    assert {found["title"] for found in seen.values() if "taken" in found["title"]} == set()
    assert seen["batches-light"]["drawn"] == 5
    assert "2 restored" in seen["batches-light"]["text"] or "3 restored" in seen["batches-light"]["text"]
    assert "1\u202f000\u202f000 characters" in seen["diff-light"]["text"] + seen["key-light"]["text"]

    _follow(browser, address, stream, query, progress)
    _keyboard(browser, address)
    query.stop()


def _look(browser: Any, address: str) -> dict[str, dict[str, Any]]:
    """Open every page in every look, keep a picture of each, and tell what the browser did and said."""
    seen: dict[str, dict[str, Any]] = {}
    for look, options in LOOKS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        found: dict[str, Any] = {}
        page.on("request", lambda request: found["hosts"].add(urlsplit(request.url).netloc))  # noqa: B023
        page.on("response", lambda answer: found["statuses"].add(answer.status))  # noqa: B023
        page.on("pageerror", lambda error: found["problems"].append(str(error)))  # noqa: B023
        page.on("console", lambda text: found["problems"].append(text.text) if text.type == "error" else None)  # noqa: B023
        for name, path in PAGES.items():
            found = {"hosts": set(), "statuses": set(), "problems": []}
            page.goto(address.rstrip("/") + path)
            if name == "batches":
                page.locator(".uplot canvas").nth(4).wait_for()
            if name in ("states", "groups"):
                page.get_by_text("as of checkpoint").wait_for()  # which comes by itself
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found["problems"] += [f"wider than the window by {wide}"] if wide > 0 else []
            found |= {
                "title": page.title(),
                "text": page.inner_text("body"),
                "drawn": page.locator(".uplot canvas").count(),
            }
            page.screenshot(path=SHOTS / f"{name}-{look}.png", full_page=True)
            seen[f"{name}-{look}"] = found
        context.close()
    return seen


def _follow(browser: Any, address: str, stream: Stream, query: Any, progress: list[es.Progress]) -> None:
    """The open page shows a batch that comes while it is open, and keeps the focus."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(f"{address}job/0/batches")
    page.locator("nav.pages a").nth(2).focus()
    before = len(progress)
    stream.add([("k1", at(5000), 1)])
    wait_in(query, lambda: len(progress) > before, "a batch")
    number = progress[-1].batch
    page.locator(f"#live tbody th:text-is('{number}')").first.wait_for()
    assert page.evaluate("document.activeElement.tagName") == "A"
    page.close()


def _keyboard(browser: Any, address: str) -> None:
    """Pages, the look-up, light and dark by keys alone."""
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto(address)
    page.keyboard.press("1")
    page.wait_for_url("**/job/0/batches")
    page.keyboard.press("2")
    page.wait_for_url("**/job/0/checkpoints")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("/")
    page.wait_for_url("**/job/0/key")
    page.keyboard.press("/")
    page.keyboard.type("k1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/job/0/key?key=k1*")
    assert page.locator("text=No state has anything").count() == 0
    page.keyboard.press("?")
    page.locator("dialog[open]").wait_for()
    page.keyboard.press("Escape")
    page.close()
