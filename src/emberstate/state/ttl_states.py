"""States with time to live: wrappers that stamp what goes in and hide what has expired, over any backend.

Each wraps an internal state whose content is `Stamped` (a list's elements and a map's user values each for themselves).
What is found expired on access is removed. With relaxed visibility it is returned that one last time.

Where this differs from Flink, on purpose: `is_empty` and sizes respect expiry, `add(None)` clears, merging expired
operands stores nothing, and the descriptor's default stands in for an expired value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from emberstate.state.internal_states import (
    InternalAggregatingState,
    InternalListState,
    InternalMapState,
    InternalReducingState,
    InternalValueState,
)
from emberstate.state.stamped import Stamped
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl import TtlClock, TtlConfig, TtlUpdate, TtlVisibility


class Expiry:
    """A time to live with the clock it is judged by."""

    __slots__ = ("_clock", "_config", "_micros", "refresh_on_read", "show_expired")

    def __init__(self, config: TtlConfig, clock: TtlClock) -> None:
        self._config = config
        self._clock = clock
        self._micros = config.micros
        self.refresh_on_read = config.update is TtlUpdate.ON_READ_AND_WRITE
        self.show_expired = config.visibility is TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def stamp(self, value: Any) -> Stamped:
        """The value, written now."""
        return Stamped(value, self._clock.now(self._config.time))

    def expired(self, stamped: Stamped) -> bool:
        """Whether the value has expired."""
        return stamped.stamp + self._micros <= self._clock.now(self._config.time)


class TtlValueState(InternalValueState):
    """A value that expires."""

    __slots__ = ("_expiry", "_original")

    def __init__(self, original: InternalValueState, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry

    def with_namespace(self, namespace: Hashable) -> TtlValueState:
        """The same state, bound to another namespace."""
        return TtlValueState(self._original.with_namespace(namespace), self._expiry)

    def value(self) -> Any:
        """Return the value unless it has expired, or None."""
        stamped = self._original.value()
        if stamped is None:
            return None
        if self._expiry.expired(stamped):
            self._original.clear()
            return stamped.value if self._expiry.show_expired else None
        if self._expiry.refresh_on_read:
            self._original.update(self._expiry.stamp(stamped.value))
        return stamped.value

    def update(self, value: Any) -> None:
        """Set the value."""
        self._original.update(self._expiry.stamp(value))

    def clear(self) -> None:
        """Remove the value."""
        self._original.clear()


class TtlListState(InternalListState):
    """A list whose elements expire one by one."""

    __slots__ = ("_expiry", "_original")

    def __init__(self, original: InternalListState, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry

    def with_namespace(self, namespace: Hashable) -> TtlListState:
        """The same state, bound to another namespace."""
        return TtlListState(self._original.with_namespace(namespace), self._expiry)

    def get(self) -> list[Any] | None:
        """Return the elements that have not expired, or None."""
        everything = self._original.get()
        if everything is None:
            return None
        living = self._clean(everything)
        if self._expiry.refresh_on_read and living:
            self._original.update([self._expiry.stamp(element.value) for element in living])
        shown = everything if self._expiry.show_expired else living
        return [element.value for element in shown] or None

    def _clean(self, everything: list[Stamped]) -> list[Stamped]:
        living = [element for element in everything if not self._expiry.expired(element)]
        if len(living) < len(everything):
            if living:
                self._original.update(living)
            else:
                self._original.clear()
        return living

    def add(self, element: Any) -> None:
        """Append an element."""
        self._original.add(self._expiry.stamp(element))

    def add_all(self, elements: list[Any]) -> None:
        """Append elements."""
        self._original.add_all([self._expiry.stamp(element) for element in elements])

    def update(self, elements: list[Any]) -> None:
        """Replace the list."""
        self._original.update([self._expiry.stamp(element) for element in elements])

    def size(self) -> int:
        """How many elements have not expired; O(elements)."""
        everything = self._original.get()
        return 0 if everything is None else sum(not self._expiry.expired(element) for element in everything)

    def clear(self) -> None:
        """Remove the list."""
        self._original.clear()

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Move lists together; elements keep their stamps, expired ones stay behind."""
        for namespace in [*sources, target]:
            bound = self.with_namespace(namespace)
            everything = bound._original.get()
            if everything is not None:
                bound._clean(everything)
        self._original.merge_namespaces(target, sources)


class TtlMapState(InternalMapState):
    """A map whose user values expire one by one."""

    __slots__ = ("_expiry", "_original")

    def __init__(self, original: InternalMapState, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry

    def with_namespace(self, namespace: Hashable) -> TtlMapState:
        """The same state, bound to another namespace."""
        return TtlMapState(self._original.with_namespace(namespace), self._expiry)

    def _read(self, user_key: Any) -> Stamped | None:
        """The stamped value that a read may see; expired ones are removed, living ones refreshed if so configured."""
        stamped: Stamped | None = self._original.get(user_key)
        if stamped is None:
            return None
        if self._expiry.expired(stamped):
            self._original.remove(user_key)
            return stamped if self._expiry.show_expired else None
        if self._expiry.refresh_on_read:
            self._original.put(user_key, self._expiry.stamp(stamped.value))
        return stamped

    def get(self, user_key: Any) -> Any:
        """Return the user value unless it has expired, or None."""
        stamped = self._read(user_key)
        return None if stamped is None else stamped.value

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        self._original.put(user_key, self._expiry.stamp(user_value))

    def remove(self, user_key: Any) -> bool:
        """Remove a user key; whether it was there and had not expired."""
        stamped = self._original.get(user_key)
        self._original.remove(user_key)
        return stamped is not None and not self._expiry.expired(stamped)

    def contains(self, user_key: Any) -> bool:
        """Whether the user key is there and has not expired; never removes, so `get` may follow."""
        stamped = self._original.get(user_key)
        if stamped is None:
            return False
        if self._expiry.expired(stamped):
            return self._expiry.show_expired
        if self._expiry.refresh_on_read:
            self._original.put(user_key, self._expiry.stamp(stamped.value))
        return True

    def size(self) -> int:
        """How many user keys have not expired; O(user keys)."""
        items = self._original.items()
        return 0 if items is None else sum(not self._expiry.expired(stamped) for _, stamped in items)

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over what has not expired; what has is removed when the iteration is through."""
        items = self._original.items()
        return None if items is None else self._items(items)

    def _items(self, items: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        expired = []
        refreshed = []
        for user_key, stamped in items:
            if self._expiry.expired(stamped):
                expired.append(user_key)
                if not self._expiry.show_expired:
                    continue
            elif self._expiry.refresh_on_read:
                refreshed.append((user_key, stamped.value))
            yield user_key, stamped.value
        for user_key, user_value in refreshed:
            self._original.put(user_key, self._expiry.stamp(user_value))
        for user_key in expired:
            self._original.remove(user_key)

    def clear(self) -> None:
        """Remove the map."""
        self._original.clear()


class StampedReduce:
    """A reduce function over stamped values: an expired old value counts as absent."""

    __slots__ = ("_expiry", "_function")

    def __init__(self, function: Callable[[Any, Any], Any], expiry: Expiry) -> None:
        self._function = function
        self._expiry = expiry

    def __call__(self, old: Stamped, new: Stamped) -> Stamped:
        """Fold `new` into `old`, stamped now."""
        if self._expiry.expired(old) and not self._expiry.show_expired:
            return new
        return self._expiry.stamp(self._function(old.value, new.value))


class TtlReducingState(InternalReducingState):
    """A folded value that expires; its function is a `StampedReduce`."""

    __slots__ = ("_expiry", "_original")

    def __init__(self, original: InternalReducingState, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry

    def with_namespace(self, namespace: Hashable) -> TtlReducingState:
        """The same state, bound to another namespace."""
        return TtlReducingState(self._original.with_namespace(namespace), self._expiry)

    def get(self) -> Any:
        """Return the folded value unless it has expired, or None."""
        stamped = self._original.get()
        if stamped is None:
            return None
        if self._expiry.expired(stamped):
            self._original.clear()
            return stamped.value if self._expiry.show_expired else None
        return stamped.value

    def add(self, value: Any) -> None:
        """Fold a value in."""
        self._original.add(self._expiry.stamp(value))

    def clear(self) -> None:
        """Remove the value."""
        self._original.clear()

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Fold namespaces together; expired operands are dropped."""
        for namespace in [*sources, target]:
            bound = self._original.with_namespace(namespace)
            stamped = bound.get()
            if stamped is not None and self._expiry.expired(stamped):
                bound.clear()
        self._original.merge_namespaces(target, sources)


class StampedAggregate(AggregateFunction[Any, Stamped, Any]):
    """An aggregate function over stamped accumulators: an expired one counts as absent."""

    def __init__(self, function: AggregateFunction[Any, Any, Any], expiry: Expiry) -> None:
        self._function = function
        self._expiry = expiry

    def create_accumulator(self) -> Stamped:
        """A fresh accumulator, stamped now."""
        return self._expiry.stamp(self._function.create_accumulator())

    def add(self, value: Any, accumulator: Stamped) -> Stamped:
        """Add to the accumulator, or to a fresh one if it has expired."""
        if self._expiry.expired(accumulator) and not self._expiry.show_expired:
            accumulator = self.create_accumulator()
        return self._expiry.stamp(self._function.add(value, accumulator.value))

    def get_result(self, accumulator: Stamped) -> Any:
        """The result."""
        return self._function.get_result(accumulator.value)

    def merge(self, one: Stamped, other: Stamped) -> Stamped:
        """The union, stamped now."""
        return self._expiry.stamp(self._function.merge(one.value, other.value))


class TtlAggregatingState(InternalAggregatingState):
    """An accumulator that expires; its function is a `StampedAggregate`."""

    __slots__ = ("_expiry", "_original")

    def __init__(self, original: InternalAggregatingState, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry

    def with_namespace(self, namespace: Hashable) -> TtlAggregatingState:
        """The same state, bound to another namespace."""
        return TtlAggregatingState(self._original.with_namespace(namespace), self._expiry)

    def _living(self) -> Stamped | None:
        """The stamped accumulator that a read may see; an expired one is removed."""
        stamped: Stamped | None = self._original.get_internal()
        if stamped is not None and self._expiry.expired(stamped):
            self._original.clear()
            return stamped if self._expiry.show_expired else None
        return stamped

    def get(self) -> Any:
        """Return the result unless the accumulator has expired, or None."""
        stamped = self._living()
        if stamped is None:
            return None
        return self._original.function.get_result(stamped)  # type: ignore[attr-defined]

    def add(self, value: Any) -> None:
        """Add a value."""
        self._original.add(value)

    def get_internal(self) -> Any:
        """Return the accumulator unless it has expired, or None."""
        stamped = self._living()
        return None if stamped is None else stamped.value

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        self._original.update_internal(None if accumulator is None else self._expiry.stamp(accumulator))

    def clear(self) -> None:
        """Remove the accumulator."""
        self._original.clear()

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable]) -> None:
        """Merge namespaces; expired operands are dropped."""
        for namespace in [*sources, target]:
            bound = self._original.with_namespace(namespace)
            stamped = bound.get_internal()
            if stamped is not None and self._expiry.expired(stamped):
                bound.clear()
        self._original.merge_namespaces(target, sources)
