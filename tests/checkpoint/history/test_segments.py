"""Segments: names, merging, thinning, damage, hostile content."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.history import segments as module
from emberstate.checkpoint.history.model import MAX_SLOTS, FailureRecord, HistoryRecord, SlotRecord
from emberstate.checkpoint.history.segments import (
    KEPT,
    SEGMENT_RECORDS,
    Segment,
    due,
    encoded,
    key_of,
    lines_of,
    merged,
    new_segments,
    records_of,
)
from emberstate.checkpoint.manifest.envelope import seal_bytes
from emberstate.errors import CorruptionError, RestoreRefusedError
from tests.effort import examples
from tests.raising import raising


def record(number: int, run: str = "a") -> HistoryRecord:
    """A batch."""
    return HistoryRecord(kind="batch", job="cards", time=number, batch=number, number=number, run=run)


def test_a_record_comes_back_with_all_its_fields() -> None:
    """Catches: a field that is lost, or that its own writer's limits refuse."""
    whole = HistoryRecord(
        kind="batch", job="cards", time=1, number=7, run="r", incarnation=3, batch=42, checkpoint=17,
        micros={"total": 5_000_000}, rows_in=10, rows_out={"main": 4}, late_rows=1, late_rows_dropped=1, null_keys=2,
        timers_fired=3, watermark=-5, lag=6, state_entries=8, state_bytes=9, delta_bytes=10, counters={"seen": -1},
        slots=tuple(
            SlotRecord(stage="rate", slot=n, executor="h:1", start="restored", micros={"total": n * 1000}, rows=5)
            for n in range(MAX_SLOTS)
        ),
        failures=(FailureRecord(error="SlotError", message="x\ny", stage="rate", slot=1),),
        parallelism={"rate": 4}, parallelism_before={"rate": 2}, savepoint="one",
    )  # fmt: skip
    ((segment, content),) = new_segments(3, 0, [encoded(whole)])
    assert records_of(lines_of(content, segment.path)) == ([whole], [])
    assert Segment.named(segment.path) == segment == Segment(segment.path, 0, 7, 7, 1)
    assert whole.rescaled == {"rate": (2, 4)} and whole.worst_slot == whole.slots[-1]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=400))
def test_history_stays_bounded_and_keeps_the_last_records(flushes: list[int]) -> None:
    """Catches: thinning that takes records among the last ones, leaves the history growing, or never ends; a merge that
    loses a record or keeps one twice."""
    kept, most = 100, 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT", kept)
        patch.setattr(module, "SEGMENT_RECORDS", most)
        files: dict[Segment, list[bytes]] = {}
        number = 0
        for count in flushes:
            lines = [encoded(record(number + n + 1)) for n in range(count)]
            number += count
            written = dict(new_segments(1, 0, lines))
            files.update({segment: lines_of(content, "x") for segment, content in written.items()})
            while (merge := due(list(files))) is not None:
                gathered = merged([line for segment in merge.segments for line in files.pop(segment)], merge.step)
                for segment, content in new_segments(1, merge.level, gathered):
                    files[segment] = lines_of(content, "x")
            numbers = sorted(key_of(line).number for lines in files.values() for line in lines)
            assert numbers == sorted(set(numbers)) and len(numbers) <= 2 * kept
            assert numbers[-kept:] == list(range(max(1, number - kept + 1), number + 1))[-len(numbers) :]
            assert len(files) <= 3 * 16 + 2 * kept // 16 + 2
            assert all(len(lines) == segment.count <= most for segment, lines in files.items())


def test_old_records_get_sparse_evenly() -> None:
    """Catches: thinning that takes whole stretches of the past, so that nothing is left of them."""
    files = [Segment(f"{n}", 2, n * 256 + 1, n * 256 + 256, 256) for n in range(100)]
    while (merge := due(files)) is not None and merge.step == 2:
        files = [segment for segment in files if segment not in merge.segments]
        count = sum(segment.count for segment in merge.segments) // 2
        files.append(Segment("m", 2, merge.segments[0].first, merge.segments[-1].last, count))
        files.sort(key=lambda segment: segment.first)
    assert sum(segment.count for segment in files) <= 2 * KEPT
    densities = [segment.count / (segment.last - segment.first + 1) for segment in files]
    assert min(densities) >= 0.5


def test_a_record_that_is_there_twice_counts_once_and_those_of_two_runs_both() -> None:
    """Catches: duplicates after a crash between writing and deleting; records of an overtaken driver that vanish."""
    lines = [encoded(record(1)), encoded(record(1)), encoded(record(1, "b")), encoded(record(2))]
    assert [key_of(line).run for line in merged(lines, 1)] == ["a", "b", "a"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        seal_bytes("history", b"not zlib"),
        seal_bytes("history", zlib.compress(b"{}\n" * (SEGMENT_RECORDS + 1))),
        seal_bytes("history", zlib.compress(b"{}")),
        seal_bytes("history", zlib.compress(bytes(100 << 20))),
        seal_bytes("history", zlib.compress(encoded(record(1)))[:-5]),
        seal_bytes("manifest", zlib.compress(encoded(record(1)))),
    ],
    ids=["empty", "junk", "packed", "many", "unended", "bomb", "cut", "other"],
)
def test_damaged_and_hostile_segments_are_rejected(content: bytes) -> None:
    """Catches: a segment that takes the reader's memory, or whose damage is read as data."""
    with raising(CorruptionError, path="history/x"):
        lines_of(content, "history/x")


def test_a_later_format_is_rejected_and_malformed_records_are_told() -> None:
    """Catches: content of a later version that is guessed at; one malformed record that takes its whole segment."""
    with raising(RestoreRefusedError, found=2):
        lines_of(b"emberstate history 2 abc\n", "history/x")
    hostile = [b'{"kind":"batch","job":"","time":0}\n', b"[" * 100_000 + b"\n", b'{"kind":"batch"}\n', b"\xff\n"]
    slots = [{"stage": "s", "slot": 0}] * (MAX_SLOTS + 1)
    hostile.append(msgspec.json.encode({"kind": "batch", "job": "j", "time": 0, "slots": slots}) + b"\n")
    found, problems = records_of([*hostile, encoded(record(1))])
    assert found == [record(1)] and len(problems) == len(hostile)


def test_names_that_are_no_segments_are_ignored() -> None:
    """Catches: a stranger's file in the folder that stops the history."""
    for path in ("history/x", "history/000001/9-1-1-1-a", "state/000001/0-000000000001-000000000001-1-a", "history/1/"):
        assert Segment.named(path) is None
