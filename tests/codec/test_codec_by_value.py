"""Classes of a script are sent to Spark's workers by value: codecs must leave them as they were."""

import dataclasses
import pickle
import typing
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

from emberstate.codec import codec_for


def types_and_values() -> list[tuple[Any, Any]]:
    """Classes that no other process could import, inside one another, and a value of each."""

    class Point(typing.NamedTuple):
        x: int

    @dataclasses.dataclass
    class Card:
        name: str
        where: Point

    class Plain(typing.TypedDict):
        cards: list[Card]

    class Holder(msgspec.Struct):
        plain: Plain
        card: Card

    card = Card("a", Point(1))
    plain: Plain = {"cards": [card]}
    return [(Point, Point(1)), (Card, card), (Plain, plain), (Holder, Holder(plain, card))]


@pytest.mark.parametrize("number", range(4))
def test_a_class_can_still_be_pickled_by_value(number: int) -> None:
    """Catches: "cannot pickle 'msgspec._core.DataclassInfo' object" for a state whose class is in a script."""
    type_, value = types_and_values()[number]
    codec = codec_for(type_)
    data = codec.encode(value)

    dumps: Any = cloudpickle.dumps
    again, bound = pickle.loads(dumps((type_, codec)))

    assert bound.type is again
    assert bound.encode(bound.decode(data)) == data
    assert codec.decode(data) == value
