"""Durations as users write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from emberstate.errors import StateDeclarationError
from emberstate.state.ttl.config import TtlConfig
from emberstate.units import as_duration, as_micros
from tests.raising import raising


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 seconds", timedelta(seconds=10)),
        ("1 second", timedelta(seconds=1)),
        ("5minutes", timedelta(minutes=5)),
        (" 1 Hour  30 MINUTES ", timedelta(hours=1, minutes=30)),
        ("250 milliseconds 3 microseconds", timedelta(milliseconds=250, microseconds=3)),
        ("2 weeks 1 day", timedelta(days=15)),
    ],
)
def test_text_is_read(text: str, expected: timedelta) -> None:
    """Catches: a unit lost, a plural not known, several parts not added."""
    assert as_duration(text, "x") == expected
    assert as_micros(expected, "x") == expected // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "value",
    [
        10,
        1.5,
        None,
        "",
        "10",
        "seconds",
        "-1 second",
        "1.5 hours",
        "3 moons",
        "1 day,",
        b"1 day",
        "999999999999 weeks",
        "1 hour foo",
    ],
)
def test_all_else_is_refused(value: Any) -> None:
    """Catches: a bare number taken as seconds, a raw error of the parser."""
    with raising(StateDeclarationError, option="gap"):
        as_duration(value, "gap")


def test_time_to_live_takes_text() -> None:
    """Catches: text kept as it is, and failing at the first read."""
    assert TtlConfig("1 hour").duration == timedelta(hours=1)
    with raising(StateDeclarationError, option="duration"):
        TtlConfig("0 seconds")
    with raising(StateDeclarationError, option="duration"):
        TtlConfig(timedelta.max)  # no file could hold it
