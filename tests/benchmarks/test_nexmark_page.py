"""What docs/benchmarks.md says of NEXMark."""

from __future__ import annotations

from typing import Any

from benchmarks.nexmark import page
from tools.nexmark import drawn


def results() -> dict[str, Any]:
    """A query that is faster than Spark's operators, one that is slower, one that they lack, which is wrong."""

    def query(rates: dict[str, float], **more: Any) -> dict[str, Any]:
        runs = {name: {"events_per_second": rate, "wrong": []} for name, rate in rates.items()}
        return {"title": "A title", "variant": "A variant.", "not_in_spark": "", "rows": 7, "contenders": runs, **more}

    queries = {
        "q1": query({"emberstate": 4_000.0, "spark": 2_000.0, "spark-rocksdb": 1_000.0}),
        "q2": query(
            {"emberstate": 500.0, "spark": 2_000.0, "spark-rocksdb": 1_000.0}, killed={"kills": 3, "wrong": []}
        ),
        "q3": query({"emberstate": 500.0}, not_in_spark="no such operator", rescaled={"kills": 2, "wrong": ["a row"]}),
    }
    queries["q3"]["contenders"]["emberstate"]["wrong"] = ["a row"]
    return {"settings": {"events": 50, "batches": 10, "cold": 2, "cores": 2, "load": [1.0, 0.5]}, "queries": queries}


def test_rows_say_what_is_lost_and_what_is_wrong() -> None:
    """Catches: a page on which a slower query looks like a faster one, or a wrong answer like an exact one."""
    first, second, third = page.rows(results())
    assert first[3:] == ["4,000", "2,000", "1,000", "2.00", "4.00", "yes", "–", "–"]
    assert second[6:] == ["0.25", "0.50", "yes", "3, exact", "–"]
    assert third[4:] == ["–", "–", "–", "–", "**no**", "–", "**wrong**"]
    assert len(first) == len(page.HEADER)
    assert "no such operator" in page.variants(results())
    assert "0.5 to 1.0" in page.introduction(results())


def test_the_picture_says_which_queries_are_slower() -> None:
    """Catches: a picture that leaves out what is lost."""
    picture = drawn(results())
    assert "2.00 x<" in picture
    assert "0.25 x, slower<" in picture
    assert picture.count("not in Spark&#x27;s operators") == 1
