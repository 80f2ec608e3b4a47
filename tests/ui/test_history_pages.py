"""Pages out of the history: batches, slots, errors; and locations without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.history.model import FailureRecord, HistoryRecord, SlotRecord
from emberstate.checkpoint.history.writer import HistoryWriter
from emberstate.checkpoint.manifest.layout import HISTORY
from emberstate.storage.uri import open_storage
from tests.patience import PATIENCE
from tests.ui.conftest import SCRIPT, Client
from tests.ui.test_pages import scripts

SECOND = 1_000_000
NOON = 1_772_366_400 * SECOND


def slot(number: int, seconds: float, **about: Any) -> SlotRecord:
    """What a slot of `cards` did, one second after the batch began."""
    micros = {"total": int(seconds * SECOND), "start": SECOND // 10, "user": SECOND // 4}
    about = {"began": NOON + SECOND, "executor": f"host:{number}", **about}
    return SlotRecord(stage="cards", slot=number, micros=micros, rows=10 * (number + 1), **about)


def batch(number: int, **about: Any) -> HistoryRecord:
    """A batch of two slots that took four seconds."""
    micros = {"total": 4 * SECOND, "spark": SECOND, "user": 2 * SECOND, "background": 9 * SECOND}
    about = {"slots": (slot(0, 1.0), slot(1, 3.0)), **about}
    return HistoryRecord(
        kind="batch", job="cards", time=NOON, batch=number, checkpoint=number + 2, micros=micros, rows_in=30,
        rows_out={"main": 4, "late": 1}, lag=5 * SECOND, **about,
    )  # fmt: skip


FAILURE = FailureRecord(error="SlotError", message=f"killed {SCRIPT}", stage="cards", slot=1, executor="host:1")


@pytest.fixture
def run_before(location: Path) -> Path:
    """The location with a history: a start, two batches of which one had an attempt that failed, a failure."""
    writer = HistoryWriter(open_storage(location), 1)
    restored = batch(1, failures=(FAILURE,), slots=(slot(0, 1.0), slot(1, 3.0, start="restored")))
    before, now = {"cards": 1}, {"cards": 2}
    opening = HistoryRecord(kind="opening", job="cards", time=NOON, parallelism=now, parallelism_before=before)
    failed = HistoryRecord(kind="failure", job="cards", time=NOON, batch=2, failures=(FAILURE,))
    for record in (opening, batch(0), restored, failed):
        writer.add(record)
    assert writer.flush(PATIENCE)
    return location


def test_batches_as_series_rows_and_events(run_before: Path, client: Client) -> None:
    """Catches: parts that do not add up to the whole; work beside a batch that is counted as a part of it; a rescale or
    a failure that is not told."""
    data = client(run_before).get("/job/0/batches.json").json()
    series = data["series"]

    assert series["parts"] == {"spark": [1.0, 1.0], "user": [2.0, 2.0], "other": [1.0, 1.0]}
    assert (series["total"], series["slowest"], series["median"]) == ([4.0, 4.0], [3.0, 3.0], [2.0, 2.0])
    assert (series["rows_in"], series["rows_out"], series["lag"]) == ([30, 30], [5, 5], [5.0, 5.0])
    assert [(row["batch"], row["restored"], row["retried"]) for row in data["rows"]] == [(1, 1, 1), (0, 0, 0)]
    assert [event["kind"] for event in data["events"]] == ["failure", "opening"]
    assert data["events"][1]["text"] == "rescaled: cards from 1 to 2 slots"
    assert [mark["kind"] for mark in data["marks"]] == ["opening", "failure"]


def test_slots_by_executor_with_a_chart(run_before: Path, client: Client) -> None:
    """Catches: a slot's numbers at another slot; a bar outside of its batch, or not as long as the slot took."""
    data = client(run_before).get("/job/0/slots.json").json()
    executors = data["executors"]
    rows = {one["name"]: [(row["slot"], row["start"], row["rows"]) for row in one["slots"]] for one in executors}
    gantt = data["gantt"]
    last = gantt["columns"][1]

    assert rows == {"host:0": [(0, "hot", 10)], "host:1": [(1, "restored", 20)]}
    assert [(lane["slot"], lane["executor"]) for lane in gantt["lanes"]] == [(0, "host:0"), (1, "host:1")]
    assert [column["batch"] for column in gantt["columns"]] == [0, 1]
    assert last["bars"][1]["width"] / last["width"] == pytest.approx(3 / 4, abs=0.01)
    assert last["bars"][1]["x"] - last["x"] == pytest.approx(last["width"] / 4, abs=0.1)
    assert last["x"] + last["width"] == pytest.approx(gantt["width"])
    assert [one["lane"] for one in last["failures"]] == [1]


def test_clocks_that_differ_keep_bars_in_their_batch(location: Path, client: Client) -> None:
    """Catches: a bar that an executor's clock moves out of the picture, or that makes a batch years wide."""
    writer = HistoryWriter(open_storage(location), 1)
    wrong = (slot(0, 1.0, began=NOON - 3600 * SECOND), slot(1, 3.0, began=NOON + 10**9 * SECOND))
    writer.add(batch(0, slots=wrong))
    assert writer.flush(PATIENCE)
    [column] = client(location).get("/job/0/slots.json").json()["gantt"]["columns"]

    assert column["seconds"] <= 8
    assert all(column["x"] <= bar["x"] <= column["x"] + column["width"] for bar in column["bars"])


def test_errors_and_what_the_overview_says_of_them(run_before: Path, client: Client) -> None:
    """Catches: a failure that is not shown, or an attempt that was repeated shown as one; a job that failed with a
    green dot."""
    web = client(run_before)
    failures = web.get("/job/0/errors.json").json()["failures"]
    [job] = web.get("/index.json").json()["jobs"]

    assert [(one["batch"], one["whole"], one["slot"]) for one in failures] == [(2, True, 1), (1, False, 1)]
    assert job["durations"] == [4.0, 4.0]
    assert "SlotError" in job["failed"]
    for page in ("/", "/job/0/errors", "/job/0/slots", "/job/0/batches"):
        assert "&lt;script&gt;" in web.get(page).text
        assert scripts(web.get(page, headers={"X-Part": "1"}).text) == 0


def test_without_a_history_pages_say_so(made: Path, client: Client) -> None:
    """Catches: an empty chart without a word; pages that fail for a job of an older version."""
    web = client(made)

    assert "has no history" in web.get("/job/0/batches").text
    assert "has no history" in web.get("/job/0/errors").text
    slots = web.get("/job/0/slots")
    assert "no history of batches yet" in slots.text
    assert [len(one["slots"]) for one in web.get("/job/0/slots.json").json()["executors"]] == [2]


def test_a_damaged_history_is_named(run_before: Path, client: Client) -> None:
    """Catches: records that are missing without a word."""
    for file in (run_before / HISTORY).rglob("*"):
        if file.is_file():
            file.write_bytes(b"broken")
    web = client(run_before)

    assert "cannot be read" in web.get("/job/0/batches").text
    assert {one["what"] for one in web.get("/job/0/errors.json").json()["damage"]} == {"history"}


@pytest.mark.parametrize("last", ["7", "-1", "x", "1" * 400])
def test_a_range_that_is_not_offered_is_refused(made: Path, client: Client, last: str) -> None:
    """Catches: a request that reads without bound."""
    assert client(made).get(f"/job/0/batches?last={last}").status_code == 400
