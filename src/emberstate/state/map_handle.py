"""`UserFacingMapState`: the handle that a user holds on a map state; an absent map reads as empty, never as None.

Changing values while iterating is allowed; adding or removing user keys raises, as with a dict. Iteration returns
copies of mutable values; `m[key]` returns the value itself, and mutating it changes the state.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any

from emberstate.codec.widening import scalar_type
from emberstate.errors import StateTypeError
from emberstate.state.descriptors import MapStateDescriptor
from emberstate.state.handles import Handle
from emberstate.state.internal_states import InternalMapState
from emberstate.state.states import MapState

_MISSING = object()


class UserFacingMapState(Handle):
    """A `MapState` over any backend: a `MutableMapping` with Flink's names."""

    __slots__ = ("check_key", "key_scalar", "original")

    original: InternalMapState
    key_scalar: Any
    check_key: Callable[[Any], None]

    def __init__(self, original: InternalMapState, descriptor: MapStateDescriptor[Any, Any]) -> None:
        Handle.__init__(self, descriptor)
        self.original = original
        self.key_scalar = scalar_type(descriptor.key_codec.type)
        if self.key_scalar is float:  # a float key may be NaN
            self.key_scalar = None
        self.check_key = descriptor.key_codec.check_deep

    def accept_key(self, key: Any) -> int:
        """Raise if a user key is not of the declared type: 1, 1.0 and True would be one key otherwise."""
        if type(key) is not self.key_scalar:
            try:
                self.check_key(key)
            except StateTypeError as error:
                raise self.refusal(error, "user key of map state") from None
        return 0

    def accept_value(self, value: Any) -> Any:
        """Return the user value as it is stored; raise if it is not of the declared type. None is of every type."""
        if type(value) is not self.scalar and value is not None:
            value = self.accept(value)
        return value

    # -- Flink's names --------------------------------------------------------------------------------------

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a user key."""
        self.accept_key(key)
        self.original.put(key, self.accept_value(value))

    def put_all(self, pairs: Mapping[Any, Any]) -> None:
        """Set the values of all user keys in `pairs` or, if one is rejected, of none."""
        if not isinstance(pairs, Mapping):
            name = self.descriptor.name
            raise StateTypeError(f"map state {name!r}: put_all takes a mapping, got {pairs!r}", state=name)
        self._put_pairs(list(pairs.items()))

    def _put_pairs(self, pairs: list[tuple[Any, Any]]) -> None:
        accepted: list[tuple[Any, Any]] = []
        for key, value in pairs:
            self.accept_key(key)
            accepted.append((key, self.accept_value(value)))
        for key, value in accepted:
            self.original.put(key, value)

    def contains(self, key: Any) -> bool:
        """Whether the user key is there, even with the value None."""
        self.accept_key(key)
        return self.original.contains(key)

    def remove(self, key: Any) -> None:
        """Remove a user key, if it is there, and the map with the last one."""
        self.accept_key(key)
        self.original.remove(key)

    def is_empty(self) -> bool:
        """Whether there is no user key."""
        return self.original.size() == 0

    def entries(self) -> ItemsView[Any, Any]:
        """The pairs; as `items()`."""
        return _Items(self)

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the pairs."""
        items = self.original.items()
        return iter(()) if items is None else items

    # -- a MutableMapping's names ---------------------------------------------------------------------------

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a user key, or `default`."""
        self.accept_key(key)
        value = self.original.get(key)
        if value is None and (default is not None and not self.original.contains(key)):
            return default
        return value

    def __getitem__(self, key: Any) -> Any:
        self.accept_key(key)
        value = self.original.get(key)
        if value is None and not self.original.contains(key):
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.accept_key(key)
        if not self.original.remove(key):
            raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)

    def __len__(self) -> int:
        return self.original.size()

    def __iter__(self) -> Iterator[Any]:
        keys = self.original.keys()
        return iter(()) if keys is None else keys

    def keys(self) -> KeysView[Any]:
        """The user keys."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:
        """The values; copies where they can change."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        """The pairs; values are copies where they can change."""
        return _Items(self)

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        """Remove a user key and return its value, or `default`."""
        self.accept_key(key)
        if not self.original.contains(key):
            if default is _MISSING:
                raise KeyError(key)
            return default
        value = self.original.get(key)
        self.original.remove(key)
        return value

    def popitem(self) -> tuple[Any, Any]:
        """Remove some pair and return it."""
        for key, value in self.iterator():
            self.original.remove(key)
            return key, value
        raise KeyError("the map state is empty")

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a user key; set it to `default` if it is not there."""
        self.accept_key(key)
        if not self.original.contains(key):
            self.put(key, default)
        return self.original.get(key)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Set the values of all given user keys, as `dict.update`, or of none if one is rejected."""
        # No dict in between: it would make one key of 1 and True before their types are checked.
        if isinstance(other, Mapping):
            pairs = list(other.items())
        elif hasattr(other, "keys"):
            pairs = [(key, other[key]) for key in other.keys()]  # noqa: SIM118  # it may have no other method
        else:
            pairs = [(key, value) for key, value in other]
        self._put_pairs([*pairs, *more.items()])

    def clear(self) -> None:
        """Remove the map of the current key."""
        self.original.clear()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.iterator()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]


class _Items(ItemsView[Any, Any]):
    """Pairs of a map state; the backend iterates, without a look-up per key."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.iterator()  # type: ignore[attr-defined, no-any-return]


class _Values(ValuesView[Any]):
    """Values of a map state; the backend iterates, without a look-up per key."""

    def __iter__(self) -> Iterator[Any]:
        for _, value in self._mapping.iterator():  # type: ignore[attr-defined]
            yield value


MapState.register(UserFacingMapState)
MutableMapping.register(UserFacingMapState)
