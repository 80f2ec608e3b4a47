"""What the tests of states share: value types, functions, and what a backend under test is made by."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from emberstate.state.states import AggregateFunction

#: Makes a backend: `make_backend(key_type=str, **options)`, with the options of `HeapKeyedStateBackend`.
BackendFactory = Callable[..., Any]

#: More user keys than a small map has, in any backend.
MANY = 40


@dataclasses.dataclass
class Profile:
    """A small value that can change."""

    visits: int
    tags: list[str] = dataclasses.field(default_factory=list)


class Mean(AggregateFunction[float, tuple[float, int], float]):
    """An aggregate with an accumulator that cannot change; a negative value is refused."""

    def create_accumulator(self) -> tuple[float, int]:
        """Nothing yet."""
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        """One value more."""
        if value < 0:
            raise ValueError("negative")
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        """The mean."""
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        """Both."""
        return one[0] + other[0], one[1] + other[1]


class Collect(AggregateFunction[int, list[int], list[int]]):
    """An aggregate that changes its accumulator in place, and raises in the middle of that for 13."""

    def create_accumulator(self) -> list[int]:
        """Nothing yet."""
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        """One value more."""
        accumulator.append(value)
        if value == 13:
            raise ValueError("thirteen")
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        """A sorted copy."""
        return sorted(accumulator)

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        """Both; `one` is changed."""
        one.extend(other)
        if 66 in one:
            raise ValueError("sixty-six")
        return one


def extend(old: list[int], new: list[int]) -> list[int]:
    """A reduce function that changes `old` in place, and raises in the middle of that if 13 comes in."""
    old.extend(new)
    if 13 in new:
        raise ValueError("thirteen")
    return old


def entries_of(snapshot: Any, state: str, groups: Iterator[int]) -> dict[tuple[Any, Any], Any]:
    """Everything that a snapshot has of a state."""
    return {(key, namespace): content for group in groups for key, namespace, content in snapshot.entries(state, group)}
