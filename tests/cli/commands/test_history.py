"""`emberstate history`, and the picture that is drawn from it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from emberstate.checkpoint.history.model import FailureRecord, HistoryRecord, SlotRecord
from emberstate.checkpoint.history.writer import HistoryWriter
from emberstate.storage.local import LocalStorage
from tests.cli.conftest import Run
from tests.patience import PATIENCE

START = 1_772_439_300_250_000


def batch(number: int, *slots: SlotRecord, failures: tuple[FailureRecord, ...] = ()) -> HistoryRecord:
    """A batch of a second."""
    return HistoryRecord(
        kind="batch", job="cards", time=START + number, batch=number, checkpoint=number + 1, rows_in=10 * number,
        micros={"total": 1_000_000, "spark": 500_000, "user": 250_000, "commit": 50_000, "sink": 200_000},
        lag=5_300_000, state_bytes=1000, delta_bytes=number, slots=slots, failures=failures,
    )  # fmt: skip


@pytest.fixture
def written(own_location: Path) -> Path:
    """A location with a history."""
    writer = HistoryWriter(LocalStorage(own_location), 1)
    slots = [SlotRecord(stage="rate", slot=n, start="restored", micros={"total": n * 100_000}) for n in range(3)]
    failure = FailureRecord(error="SlotError", message="\x1b[2J<script>\nslot died" + "x" * 500, stage="rate", slot=1)
    now, before = {"r": 3}, {"r": 2}
    opening = HistoryRecord(kind="opening", job="cards", time=START, parallelism=now, parallelism_before=before)
    writer.add(opening)
    for number in range(30):
        writer.add(batch(number))
    writer.add(batch(30, *slots, failures=(failure,)))
    writer.add(HistoryRecord(kind="savepoint", job="cards", time=START, checkpoint=31, savepoint="monday"))
    assert writer.flush(PATIENCE)
    return own_location


def test_table_and_json_tell_of_the_last_batches(cli: Run, written: Path) -> None:
    """Catches: the oldest instead of the last; a skewed slot or a repeated attempt that is not seen; an error text that
    writes to the terminal."""
    table = cli("history", written)
    assert table.code == 0 and len(table.out.splitlines()) == 21
    skewed = next(line for line in table.out.splitlines() if "slot 1 of rate" in line)
    words = skewed.split()
    assert words[1:12] == ["batch", "30", "300", "0", "1.000", "0.500", "0.250", "0.050", "0.200", "5.3", "0.200"]
    assert words[12] == "0.100" and "3 restored" in skewed and "slot died" in skewed and "\x1b" not in table.out
    assert "savepoint monday" in table.out.splitlines()[-1]
    assert "r: 2 → 3 slots" in cli("history", written, "--last", 100).out
    found = cli("history", written, "--last", 2, "--json").json
    assert [record["kind"] for record in found["records"]] == ["batch", "savepoint"] and found["damaged"] == []
    assert found["records"][0]["slots"][2]["micros"] == {"total": 200_000}


def test_damage_is_named_and_no_history_is_said(cli: Run, written: Path, location: Path) -> None:
    """Catches: damage that fails the command, or that nobody is told of; an empty table where nothing was written."""
    assert (cli("history", location).code, "no history" in cli("history", location).err) == (3, True)
    files = list((written / "history").rglob("*-*"))
    for file in files:
        file.chmod(0o600)
        file.write_bytes(b"junk")
    found = cli("history", written)
    assert found.code == 0 and all(f"skipped: history/000001/{file.name}" in found.out for file in files)


def test_a_picture_of_the_history(cli: Run, written: Path, tmp_path: Path) -> None:
    """Catches: a picture of the last checkpoints alone, though there is a history."""
    found = cli("checkpoints", "plot", written, "--to", tmp_path / "one.svg", "--json")
    assert (found.code, found.json["batches"]) == (0, 31)
    drawing = (tmp_path / "one.svg").read_bytes()
    assert ElementTree.fromstring(drawing).tag == "{http://www.w3.org/2000/svg}svg"
