"""Values of numpy and pandas: they look like Python's own, and would not come back as they were."""

from __future__ import annotations

import datetime

import pytest

from emberstate.codec import codec_for
from emberstate.errors import StateDeclarationError, StateTypeError
from tests.raising import raising


def test_numpy() -> None:
    """A numpy float is a float subclass: written as it is, it would come back as another class."""
    numpy = pytest.importorskip("numpy")
    for type_, words in ((numpy.int64, r"\.item\(\)"), (numpy.ndarray, r"list\[float\]")):
        with raising(StateDeclarationError, words, field="value"):
            codec_for(type_)
    with raising(StateTypeError, r"\.item\(\)", field="$"):
        codec_for(int).encode(numpy.int64(1))
    with raising(StateTypeError, "subclass", field="$"):
        codec_for(float).encode(numpy.float64(1))


def test_pandas() -> None:
    """A Timestamp is a datetime subclass with nanoseconds, which would be lost."""
    pandas = pytest.importorskip("pandas")
    for type_, words in ((pandas.Timestamp, "to_pydatetime"), (pandas.DataFrame, "dataclasses")):
        with raising(StateDeclarationError, words, field="value"):
            codec_for(type_)
    with raising(StateTypeError, "subclass", field="$"):
        codec_for(datetime.datetime).encode(pandas.Timestamp("2024-01-01"))
