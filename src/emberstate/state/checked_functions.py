"""User functions of reducing and aggregating states, with what they return checked before it is stored.

A function that returns None, or something of another type than declared, is an error where it happens, not
when the state is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.codec.widening import scalar_type, widened
from emberstate.errors import StateTypeError
from emberstate.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor, StateDescriptor
from emberstate.state.states import AggregateFunction


class CheckedReduce:
    """The reduce function of a state.

    >>> descriptor = ReducingStateDescriptor("total", lambda old, new: None, int)
    >>> CheckedReduce(descriptor)(1, 2)
    Traceback (most recent call last):
        ...
    emberstate.errors.StateTypeError: reducing state 'total': its function returned None: ...
    """

    __slots__ = ("_check", "_function")

    def __init__(self, descriptor: ReducingStateDescriptor[Any]) -> None:
        self._function = descriptor.function
        self._check = _checker(descriptor, "its function")

    def __call__(self, old: Any, new: Any) -> Any:
        """Fold `new` into `old`."""
        return self._check(self._function(old, new))


class CheckedAggregate(AggregateFunction[Any, Any, Any]):
    """The aggregate function of a state."""

    def __init__(self, descriptor: AggregatingStateDescriptor) -> None:
        self._function = descriptor.function
        self._check = _checker(descriptor, "its aggregate function")

    def create_accumulator(self) -> Any:
        """A fresh accumulator."""
        return self._check(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with `value` in it."""
        return self._check(self._function.add(value, accumulator))

    def get_result(self, accumulator: Any) -> Any:
        """What the accumulator stands for."""
        return self._function.get_result(accumulator)

    def merge(self, one: Any, other: Any) -> Any:
        """The union of two accumulators."""
        return self._check(self._function.merge(one, other))


def _checker(descriptor: StateDescriptor, who: str) -> Callable[[Any], Any]:
    where = f"{descriptor.kind} state {descriptor.name!r}: {who} returned"
    check = descriptor.codec.check
    label = descriptor.codec.schema.label
    scalar = scalar_type(descriptor.codec.type)

    def checked(result: Any) -> Any:
        if result is None:
            raise StateTypeError(f"{where} None: return a value of {label} (is a return missing?)")
        if type(result) is not scalar:
            result = widened(result, scalar)
        try:
            check(result)
        except StateTypeError as error:
            raise StateTypeError(f"{where} something else than declared: {error}") from None
        return result

    return checked
