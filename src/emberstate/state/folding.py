"""How reducing and aggregating states fold: one `Folding` for both, which checks what user functions return.

A reducing state is a folding state whose accumulator has the type of its values. A function that returns None, or
something else than the declared type, raises where it is called, not when the state is written.

>>> total = ReducingStateDescriptor("total", lambda old, new: None, int)
>>> folding_of(total).fold(1, 2)
Traceback (most recent call last):
    ...
emberstate.errors.StateTypeError: reducing state 'total': its function returned None: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.codec.widening import scalar_type, widened
from emberstate.errors import StateTypeError
from emberstate.state.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor, StateDescriptor
from emberstate.state.internal_states import Folding


def folding_of(descriptor: ReducingStateDescriptor[Any] | AggregatingStateDescriptor) -> Folding:
    """The folding of a descriptor; it checks what the user's functions return."""
    if isinstance(descriptor, ReducingStateDescriptor):
        return _reducing(descriptor)
    return _aggregating(descriptor)


def _reducing(descriptor: ReducingStateDescriptor[Any]) -> Folding:
    reduce = descriptor.function
    check = _checker(descriptor, "its function")

    def fold(old: Any, new: Any) -> Any:
        return new if old is None else check(reduce(old, new))

    return Folding(fold, fold, None)


def _aggregating(descriptor: AggregatingStateDescriptor) -> Folding:
    function = descriptor.function
    check = _checker(descriptor, "its aggregate function")

    def fold(accumulator: Any, value: Any) -> Any:
        if accumulator is None:
            accumulator = check(function.create_accumulator())
        return check(function.add(value, accumulator))

    def merge(one: Any, other: Any) -> Any:
        return check(function.merge(one, other))

    return Folding(fold, merge, function.get_result)


def _checker(descriptor: StateDescriptor, who: str) -> Callable[[Any], Any]:
    where = f"{descriptor.kind} state {descriptor.name!r}: {who} returned"
    check = descriptor.codec.check
    label = descriptor.codec.schema.label
    scalar = scalar_type(descriptor.codec.type)

    def checked(result: Any) -> Any:
        if result is None:
            raise StateTypeError(
                f"{where} None: return a value of {label} (is a return missing?)", state=descriptor.name
            )
        if type(result) is not scalar:
            result = widened(result, scalar)
        try:
            check(result)
        except StateTypeError as error:
            found = error.reworded(f"{where} something else than declared: {error}")
            raise found.located(state=descriptor.name) from None
        return result

    return checked
