"""States with time to live: wrappers over any backend that stamp what is written and hide what has expired.

Each wraps an internal state whose content is `Stamped` (list elements and user values of maps one by one). What a read
finds expired it removes; with relaxed visibility it returns that one last time.

Where this differs from Flink, on purpose: `is_empty` and sizes count what a read would return, `add(None)` clears,
merging expired operands stores nothing, the descriptor's default replaces an expired value, and a read renews a stamp
only if time has passed since (so reads within one transaction write once).

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from emberstate.state.internal_states import (
    Folding,
    InternalFoldingState,
    InternalListState,
    InternalMapState,
    InternalValueState,
)
from emberstate.state.key_context import KeyContext
from emberstate.state.ttl.config import TtlClock, TtlConfig, TtlUpdate, TtlVisibility
from emberstate.state.ttl.stamped import Stamped


class Expiry:
    """A time to live with its clock, and the context of the current key."""

    __slots__ = ("_clock", "_config", "_micros", "_refresh_on_read", "context", "show_expired")

    def __init__(self, config: TtlConfig, clock: TtlClock, context: KeyContext) -> None:
        self._config = config
        self._clock = clock
        self._micros = config.micros
        self._refresh_on_read = config.update is TtlUpdate.ON_READ_AND_WRITE
        self.context = context
        self.show_expired = config.visibility is TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP

    def stamp(self, value: Any) -> Stamped:
        """Return the value, stamped now."""
        return Stamped(value, self._clock.now(self._config.time))

    def expired(self, stamped: Stamped) -> bool:
        """Whether the value has expired."""
        return stamped.stamp + self._micros <= self._clock.now(self._config.time)

    def shows(self, stamped: Stamped) -> bool:
        """Whether a read may return the value."""
        return self.show_expired or not self.expired(stamped)

    def ages(self, stamped: Stamped) -> bool:
        """Whether a read must renew the stamp of the value, which has not expired."""
        return self._refresh_on_read and stamped.stamp < self._clock.now(self._config.time)

    def read(
        self, stamped: Stamped | None, rewrite: Callable[[Stamped], None], remove: Callable[[], object]
    ) -> Stamped | None:
        """Return `stamped` if a read may, or None; remove it if it has expired, renew its stamp if reads do."""
        if stamped is None:
            return None
        if self.expired(stamped):
            remove()
            return stamped if self.show_expired else None
        if self.ages(stamped):
            rewrite(self.stamp(stamped.value))
        return stamped


class _TtlState:
    """The wrapped state and its expiry; a mix-in, for the slots belong to the classes that use it."""

    __slots__ = ()

    _original: Any
    _expiry: Expiry

    def __init__(self, original: Any, expiry: Expiry) -> None:
        self._original = original
        self._expiry = expiry  # type: ignore[misc]

    def with_namespace(self, namespace: Hashable) -> Any:
        """Return the same state, bound to another namespace."""
        return type(self)(self._original.with_namespace(namespace), self._expiry)

    def clear(self) -> None:
        """Remove the entry of the current key."""
        self._original.clear()


class TtlValueState(_TtlState, InternalValueState):
    """A value that expires."""

    __slots__ = ("_expiry", "_original")

    _original: InternalValueState

    def value(self) -> Any:
        """Return the value unless it has expired, or None."""
        original = self._original
        stamped = self._expiry.read(original.value(), original.update, original.clear)
        return None if stamped is None else stamped.value

    def lend(self, default: Any) -> None:
        """Store `default`, which a caller is about to get, once it is mutated, stamped now."""
        self._original.lend(self._expiry.stamp(default))

    def update(self, value: Any) -> None:
        """Set the value."""
        self._original.update(self._expiry.stamp(value))


class TtlListState(_TtlState, InternalListState):
    """A list whose elements expire one by one."""

    __slots__ = ("_expiry", "_original")

    _original: InternalListState

    def get(self) -> list[Any] | None:
        """Return the elements that have not expired, or None."""
        everything = self._original.get()
        if everything is None:
            return None
        shown = [element.value for element in everything if self._expiry.shows(element)]
        self._look_after()
        return shown or None

    def peek(self) -> list[Any] | None:
        """Return the elements that have not expired, or None; the caller must not mutate them."""
        everything = self._original.peek() or ()
        return [element.value for element in everything if self._expiry.shows(element)] or None

    def _look_after(self) -> None:
        """After a read: drop what has expired, and renew stamps if reads do."""
        expiry = self._expiry
        everything = self._original.peek() or []
        living = [element for element in everything if not expiry.expired(element)]
        if not living:
            self._original.clear()
        elif len(living) < len(everything) or any(map(expiry.ages, living)):
            self._original.update(
                [expiry.stamp(element.value) if expiry.ages(element) else element for element in living]
            )

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
        """Return how many elements a read would return; O(elements)."""
        return sum(map(self._expiry.shows, self._original.peek() or ()))

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Concatenate lists; elements keep their stamps, expired ones are dropped."""
        if not sources:
            return
        for namespace in (*sources, target):
            bound = self._original.with_namespace(namespace)
            everything = bound.peek() or []
            living = [element for element in everything if not self._expiry.expired(element)]
            if everything and not living:
                bound.clear()
            elif len(living) < len(everything):
                bound.update(living)
        self._original.merge_namespaces(target, sources)


class TtlMapState(_TtlState, InternalMapState):
    """A map whose user values expire one by one."""

    __slots__ = ("_expiry", "_original")

    _original: InternalMapState

    def get(self, user_key: Any) -> Any:
        """Return the user value unless it has expired, or None."""
        original = self._original
        stamped = self._expiry.read(
            original.get(user_key),
            lambda renewed: original.put(user_key, renewed),
            lambda: original.remove(user_key),
        )
        return None if stamped is None else stamped.value

    def put(self, user_key: Any, user_value: Any) -> None:
        """Set the value of a user key."""
        self._original.put(user_key, self._expiry.stamp(user_value))

    def remove(self, user_key: Any) -> bool:
        """Remove a user key; return whether a read would have found it."""
        stamped = self._original.get(user_key)
        return stamped is not None and self._original.remove(user_key) and self._expiry.shows(stamped)

    def contains(self, user_key: Any) -> bool:
        """Whether a read would find the user key; counts as a read, but never removes, so that `get` may follow."""
        stamped = self._original.get(user_key)
        if stamped is None:
            return False
        if self._expiry.expired(stamped):
            return self._expiry.show_expired
        self._renew(user_key, stamped)
        return True

    def size(self) -> int:
        """Return how many user keys a read would find; O(user keys)."""
        return sum(self._expiry.shows(stamped) for _, stamped in self._original.items() or ())

    def items(self) -> Iterator[tuple[Any, Any]] | None:
        """Iterate over what has not expired; remove what has at the end of the iteration.

        With relaxed visibility reading a value may remove its user key: the pairs are collected first.
        """
        items = self._original.items()
        if items is None:
            return None
        if self._expiry.show_expired:
            items = iter(list(items))
        return self._items(items, self._expiry.context.key)

    def _items(self, items: Iterator[tuple[Any, Any]], key: Any) -> Iterator[tuple[Any, Any]]:
        expiry = self._expiry
        expired = []
        for user_key, stamped in items:
            expiry.context.check_still(key)
            if expiry.expired(stamped):
                expired.append(user_key)
                if not expiry.show_expired:
                    continue
            elif expiry.ages(stamped):
                # Rewrite the value itself; the caller gets the copy.
                self._renew(user_key, self._original.get(user_key))
            yield user_key, stamped.value
        expiry.context.check_still(key)
        for user_key in expired:
            stamped = self._original.get(user_key)
            if stamped is not None and expiry.expired(stamped):  # else it was removed or written meanwhile
                self._original.remove(user_key)

    def keys(self) -> Iterator[Any] | None:
        """Iterate over the user keys that have not expired, as `items` does.

        With relaxed visibility nothing is removed: the values have not been returned that one last time.
        """
        if self._expiry.show_expired:
            keys = self._original.keys()
            return None if keys is None else iter(list(keys))
        items = self.items()
        return None if items is None else (user_key for user_key, _ in items)

    def _renew(self, user_key: Any, stamped: Stamped | None) -> None:
        if stamped is not None and self._expiry.ages(stamped):
            self._original.put(user_key, self._expiry.stamp(stamped.value))


class TtlFoldingState(_TtlState, InternalFoldingState):
    """An accumulator that expires; the state it wraps folds by the `stamped_folding` of `folding`."""

    __slots__ = ("_expiry", "_folding", "_original")

    _original: InternalFoldingState

    def __init__(self, original: InternalFoldingState, expiry: Expiry, folding: Folding) -> None:
        super().__init__(original, expiry)
        self._folding = folding

    def with_namespace(self, namespace: Hashable) -> TtlFoldingState:
        """Return the same state, bound to another namespace."""
        return TtlFoldingState(self._original.with_namespace(namespace), self._expiry, self._folding)

    def get(self) -> Any:
        """Return the result unless the accumulator has expired, or None."""
        accumulator = self.get_internal()
        result = self._folding.result
        return accumulator if accumulator is None or result is None else result(accumulator)

    def add(self, value: Any) -> None:
        """Fold a value in."""
        self._original.add(value)

    def get_internal(self) -> Any:
        """Return the accumulator unless it has expired, or None."""
        original = self._original
        stamped = self._expiry.read(original.get_internal(), original.update_internal, original.clear)
        return None if stamped is None else stamped.value

    def update_internal(self, accumulator: Any) -> None:
        """Set the accumulator; None clears."""
        self._original.update_internal(None if accumulator is None else self._expiry.stamp(accumulator))

    def merge_namespaces(self, target: Hashable, sources: Sequence[Hashable] | None) -> None:
        """Merge namespaces; drops expired operands."""
        if not sources:
            return
        for namespace in (*sources, target):
            bound = self._original.with_namespace(namespace)
            stamped = bound.get_internal()
            if stamped is not None and self._expiry.expired(stamped):
                bound.clear()
        self._original.merge_namespaces(target, sources)


def stamped_folding(folding: Folding, expiry: Expiry) -> Folding:
    """Return the folding over stamped accumulators: it treats an expired one as absent, and stamps results now."""

    def fold(old: Stamped | None, value: Any) -> Stamped:
        return expiry.stamp(folding.fold(old.value if old is not None and expiry.shows(old) else None, value))

    def merge(one: Stamped, other: Stamped) -> Stamped:
        return expiry.stamp(folding.merge(one.value, other.value))

    return Folding(fold, merge, None)
