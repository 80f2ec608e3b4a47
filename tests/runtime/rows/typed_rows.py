"""Row classes of all kinds, with the same fields."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, NamedTuple

import msgspec


class Tuple(NamedTuple):
    """A NamedTuple."""

    card: str
    amount: float | None


@dataclasses.dataclass(slots=True)
class Slots:
    """Its slots are filled without a call."""

    card: str
    amount: float | None


@dataclasses.dataclass(slots=True, frozen=True)
class Frozen:
    """The same, and immutable."""

    card: str
    amount: float | None


@dataclasses.dataclass
class Plain:
    """Has a dict."""

    card: str
    amount: float | None


@dataclasses.dataclass(kw_only=True, slots=True)
class ByKeyword:
    """Is made by keywords alone."""

    card: str
    amount: float | None


class Struct(msgspec.Struct):
    """A msgspec.Struct."""

    card: str
    amount: float | None


@dataclasses.dataclass(slots=True)
class Checked:
    """Has a `__post_init__`."""

    card: str
    amount: float | None

    def __post_init__(self) -> None:
        self.card = self.card.upper()


@dataclasses.dataclass(slots=True)
class OwnInit:
    """Has an `__init__` of its own."""

    card: str
    amount: float | None

    def __init__(self, card: str, amount: float | None) -> None:
        self.card, self.amount = f"{card}!", amount


class SubTuple(Tuple):
    """Has a `__new__` of its own."""

    __slots__ = ()

    def __new__(cls, card: str, amount: float | None) -> SubTuple:
        return super().__new__(cls, f"<{card}>", amount)


ALL: Final[list[Any]] = [Tuple, Slots, Frozen, Plain, ByKeyword, Struct, Checked, OwnInit, SubTuple]
