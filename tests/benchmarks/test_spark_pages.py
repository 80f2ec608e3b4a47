"""What is written about `spark_pipeline`, of results that are made up."""

from __future__ import annotations

from typing import Any

from benchmarks.page import number, table
from benchmarks.spark_pages import headline, parts
from benchmarks.spark_pipeline import COUNT, MAP_COUNT, SHUFFLE, STATEFUL, Size, _summary, targets_of


def run(rows: int, seconds: list[float], of_parts: dict[str, float] | None = None) -> dict[str, Any]:
    one = {"seconds": seconds, "batch_seconds": seconds[-1], "parts": of_parts or {}, "peak_mb": 1000.0}
    return _summary(Size(rows, 1, len(seconds) - 1), [one, one])


def results() -> dict[str, Any]:
    seconds = {"total": 0.5, "user": 0.25, "background": 0.0}
    ours = {name: run(200_000, [9.0, 0.5, 1.0, 2.0], seconds) for name in (COUNT, MAP_COUNT)}
    slow = {name: run(200_000, [90.0, 40.0]) for name in STATEFUL}
    return {
        "rows": {"200000": {**ours, SHUFFLE: run(200_000, [5.0, 0.8])}},
        "stateful": {"6000": {**ours, **slow}, "200000": {**ours, **slow}},
        "tiny": {"mapInArrow": run(1, [2.0, 0.2]), COUNT: run(1, [2.0, 0.3], seconds)},
        "state": {"costs": {"10000": 0.25, "1000000": 0.5}},
    }


def test_aims_and_figures() -> None:
    """Catches: cold batches that count; a ratio the wrong way round; a figure under another's heading."""
    found = {target.name: (target.value, target.met) for target in targets_of(results())}
    assert found["a batch of one row: time of foreachBatch with mapInArrow"] == (0.3 / 0.2, False)
    assert found["emberstate count, 200,000 rows per batch: time of shuffle + mapInArrow"] == (1.0 / 0.8, True)
    assert found["emberstate count, 200,000 rows per batch: time of transformWithState count"] == (1 / 40, True)
    text = "\n".join(parts(results(), table, number))
    assert "| running count | 200,000 | 1 | 0.5 | 2 | 6 | 1,000 |" in text
    assert "0.5 s beyond the fixed cost with 1M keys of state, 0.25 s with 10k" in text
    assert headline(results()) == (
        "rows/s, local[2], 200k-row batches for all: running count 200.0k, shuffle + mapInArrow 250.0k, "
        "transformWithState count 5.0k, applyInPandasWithState count 5.0k"
    )
