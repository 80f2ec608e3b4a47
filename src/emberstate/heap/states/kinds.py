"""From a descriptor to the `ValueKind` of its state table: copying follows the declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.codec import Codec
from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind, ValueKind
from emberstate.heap.states.list_value import ListKind
from emberstate.heap.states.map_value import MapKind
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor
from emberstate.state.ttl.stamped import Stamped


class RecordKind(ValueKind):
    """The kind of a table that holds records in columns (`heap.columns`): what it hands out is made at each read."""


def kind_for(descriptor: StateDescriptor) -> ValueKind:
    """Return the kind of the values in the state's entries."""
    immutable = descriptor.codec.immutable
    copy = _copier(descriptor.codec, stamped=descriptor.ttl is not None)
    if isinstance(descriptor, ListStateDescriptor):
        return ListKind(None if immutable else copy)
    content = IMMUTABLE if immutable else MutableKind(copy, _comparer(descriptor.codec))
    return MapKind(content) if isinstance(descriptor, MapStateDescriptor) else content


def _copier(codec: Codec[Any], *, stamped: bool) -> Callable[[Any], Any]:
    copy = codec.copy

    def copy_plain(value: Any) -> Any:
        return None if value is None else copy(value)  # a map's user value may be None

    def copy_stamped(value: Stamped) -> Stamped:
        return Stamped(copy_plain(value.value), value.stamp)

    return copy_stamped if stamped else copy_plain


def _comparer(codec: Codec[Any]) -> Callable[[Any, Any], bool]:
    def same(one: Any, other: Any) -> bool:
        if isinstance(one, Stamped):
            return one.stamp == other.stamp and same(one.value, other.value)
        if one is None or other is None:
            return one is other
        return codec.same(one, other)

    return same
