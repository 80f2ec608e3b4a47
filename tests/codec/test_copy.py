"""Copies follow the type: nothing that can change is shared, nothing else is copied."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.codec import codec_for
from emberstate.errors import StateTypeError
from tests.codec.typed_values import canon, cases
from tests.effort import examples
from tests.raising import raising


def _mutate(value: Any) -> None:
    """Change everything in `value` that can change, at every depth."""
    if isinstance(value, (list, tuple)):
        for item in value:
            _mutate(item)
    elif isinstance(value, dict):
        for item in value.values():
            _mutate(item)
    names: tuple[str, ...] = ()
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    elif dataclasses.is_dataclass(value):
        names = tuple(field.name for field in dataclasses.fields(value))
    for name in names:
        _mutate(getattr(value, name))
        try:
            setattr(value, name, "changed")
        except AttributeError:  # frozen
            continue
    if isinstance(value, (list, dict, set)):
        value.clear()


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data())
def test_copies_share_nothing_that_can_change(data: st.DataObject) -> None:
    """Would catch a copier that stops too early: a snapshot would then change with the live value."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    value = data.draw(case.values)
    before = canon(value)
    copy = codec.copy(value)
    assert canon(copy) == before
    assert codec.encode(copy) == codec.encode(value)
    _mutate(copy)
    assert canon(value) == before


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_immutable_values_are_their_own_copies(data: st.DataObject) -> None:
    """Both ways: an immutable type is never copied, and no value of one can be changed."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    value = data.draw(case.values)
    if codec.immutable:
        before = canon(value)
        assert codec.copy(value) is value
        _mutate(value)
        assert canon(value) == before


@dataclasses.dataclass
class Point:
    x: int


class Box(msgspec.Struct, dict=True):
    x: int


def test_one_level_for_containers_of_immutables() -> None:
    """Would catch a deep copy where one level is enough: the tuples are the same objects."""
    inner = (1, 2)
    copy = codec_for(list[tuple[int, ...]]).copy([inner])
    assert copy[0] is inner


def test_undeclared_attributes_are_not_dropped_by_a_copy() -> None:
    """A copy that quietly lost them would pass the commit that should refuse the value."""
    point, box = Point(1), Box(1)
    point.y = box.y = 2  # type: ignore[attr-defined]
    codec = codec_for(Point)
    with raising(StateTypeError, field="$.y"):
        codec.encode(codec.copy(point))
    with raising(StateTypeError, field="$.y"):
        codec_for(Box).copy(box)


def test_copying_a_wrong_value_says_so() -> None:
    """A value is only looked at from outside when it is put: its copy may find it wrong first."""
    with raising(StateTypeError, field="$[0]"):
        codec_for(list[list[int]]).copy([1])
