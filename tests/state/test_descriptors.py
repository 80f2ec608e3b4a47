"""Declaring states: what cannot work is refused at once, with what to write instead."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from emberstate.codec import codec_for, key_codec_for, pickle_codec
from emberstate.errors import LifecycleError, StateDeclarationError, StateTypeError
from emberstate.state.descriptors import (
    MAX_NAME_LENGTH,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.ttl.config import TtlClock, TtlConfig, TtlTime
from tests.raising import raising
from tests.state.support import Collect


@pytest.mark.parametrize(
    "name", ["", None, 5, " a", "a ", "a\nb", "a/b", "a\\b", "\ud800", "x" * (MAX_NAME_LENGTH + 1)]
)
def test_names_that_cannot_be_stored_are_refused(name: Any) -> None:
    """Catches a state whose name is found out to be impossible when the first checkpoint is written."""
    with pytest.raises(StateDeclarationError):
        ValueStateDescriptor(name, int)
    with pytest.raises(StateDeclarationError):
        MapStateDescriptor(name, str, int)


@pytest.mark.parametrize("name", ["a", "x" * MAX_NAME_LENGTH, "two words", "später", "状态"])
def test_names_in_any_language_work(name: str) -> None:
    """Catches a rule for names that knows English only."""
    assert ValueStateDescriptor(name, int).name == name


def test_a_default_is_checked_and_the_descriptors_own() -> None:
    """Catches a default of the wrong type, at any depth, and one that its giver still changes."""
    for bad in ("x", True, 1.0):
        with pytest.raises(StateTypeError):
            ValueStateDescriptor("v", int, default=bad)
    with pytest.raises(StateTypeError):
        ValueStateDescriptor("v", list[int], default=["x"])
    given = [1]
    descriptor = ValueStateDescriptor("v", list[int], default=given)
    given.append(2)
    assert descriptor.default == [1]


def test_user_keys_must_be_keys() -> None:
    """Catches user keys that can change, and a codec that takes 1 and 1.0 (one key to a dict) for two."""
    for key_type in (list[int], dict[str, int], int | float):
        with pytest.raises(StateDeclarationError):
            MapStateDescriptor("m", key_type, int)  # type: ignore[arg-type]
    for codec in (codec_for(int | float), codec_for(str), pickle_codec(str)):
        with raising(StateDeclarationError, state="m"):
            MapStateDescriptor("m", codec, int)
    assert MapStateDescriptor("m", key_codec_for(str), int).key_codec.type is str


def test_functions_and_times_to_live_are_checked() -> None:
    """Catches a declaration whose mistake would show when the first row comes in."""
    with raising(StateDeclarationError, state="r"):
        ReducingStateDescriptor("r", 5, int)  # type: ignore[arg-type]
    with raising(StateDeclarationError, state="a"):
        AggregatingStateDescriptor("a", Collect, list[int])  # type: ignore[arg-type]
    for ttl in (5, "an hour", timedelta(0)):
        with pytest.raises(StateDeclarationError) as caught:
            ListStateDescriptor("l", int, ttl=ttl)  # type: ignore[arg-type]
        assert caught.value.option in ("ttl", "duration")
    for duration in (timedelta(0), timedelta(-1), 5, None):
        with raising(StateDeclarationError, option="duration"):
            TtlConfig(duration)  # type: ignore[arg-type]


def test_a_time_to_live_may_be_a_duration() -> None:
    """Catches a descriptor that refuses what the declarations of functions, and the reference, take."""
    for ttl in ("1 hour", timedelta(hours=1), TtlConfig("60 minutes")):
        assert ValueStateDescriptor("v", int, ttl=ttl).ttl == TtlConfig(timedelta(hours=1))


def test_what_is_declared_alike_is_equal() -> None:
    """Catches descriptors that are told apart by which object they are, and a default that has no hash."""
    collect = Collect()
    alike: list[list[StateDescriptor]] = [
        [ValueStateDescriptor("s", list[int], default=[1], ttl="1 hour") for _ in range(2)],
        [ValueStateDescriptor("s", list[int], default=[2]) for _ in range(2)],
        [ValueStateDescriptor("s", int) for _ in range(2)],
        [ValueStateDescriptor("other", int) for _ in range(2)],
        [ListStateDescriptor("s", int) for _ in range(2)],
        [MapStateDescriptor("s", str, int) for _ in range(2)],
        [MapStateDescriptor("s", int, int) for _ in range(2)],
        [ReducingStateDescriptor("s", max, int) for _ in range(2)],
        [ReducingStateDescriptor("s", min, int) for _ in range(2)],
        [AggregatingStateDescriptor("s", collect, list[int]) for _ in range(2)],
        [AggregatingStateDescriptor("s", Collect(), list[int])],
    ]
    for group in alike:
        assert group[0] == group[-1]
        assert hash(group[0]) == hash(group[-1])
        assert group[0] != "s"
    assert len({descriptor for group in alike for descriptor in group}) == len(alike)


def test_descriptors_cannot_change() -> None:
    """Catches a descriptor changed after its state was registered."""
    descriptor = ValueStateDescriptor("v", int)
    with pytest.raises(dataclasses.FrozenInstanceError):
        descriptor.name = "w"  # type: ignore[misc]


def test_expiry_is_exact_and_never_overflows() -> None:
    """Catches a boundary off by one, durations cut to milliseconds, and sums beyond int64 that wrap."""
    config = TtlConfig(timedelta(microseconds=3))
    assert config.micros == 3
    assert [config.expired(-1, now) for now in (0, 1, 2, 3)] == [False, False, True, True]
    huge = TtlConfig(timedelta(microseconds=2**63 - 1))
    assert not huge.expired(2**63 - 1, 2**63 - 1)
    assert not huge.expired(1, 2**63 - 1)


def test_a_clock_that_was_not_set_says_how() -> None:
    """Catches a time of 0 taken for the present: everything would look young, or expired."""
    clock = TtlClock()
    for time, attribute in ((TtlTime.PROCESSING, "processing_time"), (TtlTime.EVENT, "event_time")):
        with raising(LifecycleError, option=attribute):
            clock.now(time)
        setattr(clock, attribute, 0)
        assert clock.now(time) == 0
