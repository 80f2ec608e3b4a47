"""Broadcast state: maps that belong to no key, the same in every slot, and stored once.

They live in a backend of their own, with one key group and one key. Every slot has one and changes it in the same way,
so the files of one slot serve all. Therefore only broadcast rows may change it: elsewhere it is read-only, and reads
return copies of mutable values.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, Final

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import MapStateDescriptor, StateDescriptor
from emberstate.state.states import MapState

#: The one key of a backend of broadcast state.
BROADCAST_KEY: Final = "broadcast"


class BroadcastSide:
    """The broadcast states of an operator, and whether a broadcast row is being handled."""

    __slots__ = ("_handles", "backend", "writable")

    def __init__(self) -> None:
        self.backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
        self.writable = False
        self._handles: dict[str, tuple[StateDescriptor, BroadcastState]] = {}

    def state(self, descriptor: StateDescriptor) -> BroadcastState:
        """The state of a descriptor, registered when it is first asked for."""
        if not isinstance(descriptor, MapStateDescriptor) or descriptor.ttl is not None:
            what = f"broadcast state is a map without time to live, found {descriptor!r:.200}"
            raise StateDeclarationError(what, state=getattr(descriptor, "name", None), expected="map")
        known = self._handles.get(descriptor.name)
        if known is not None and known[0] is descriptor:
            return known[1]
        state = BroadcastState(self.backend.get_partitioned_state(descriptor), descriptor, self)
        self._handles[descriptor.name] = (descriptor, state)
        return state

    def enter(self) -> None:
        """Make the one key current; a restore or a roll-back clears it."""
        self.backend.set_current_key(BROADCAST_KEY)


class BroadcastState(MapState[Any, Any]):
    """A broadcast map as a function holds it."""

    __slots__ = ("_copy", "_map", "_name", "_side")

    def __init__(
        self, pairs: MapState[Any, Any], descriptor: MapStateDescriptor[Any, Any], side: BroadcastSide
    ) -> None:
        self._map = pairs
        self._side = side
        self._copy = descriptor.codec.copy
        self._name = descriptor.name

    # -- reads ----------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        value = self._map[key]
        return value if value is None or self._side.writable else self._copy(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def contains(self, key: Any) -> bool:
        """Whether the user key is there."""
        return self._map.contains(key)

    def __contains__(self, key: object) -> bool:
        return self._map.contains(key)

    def is_empty(self) -> bool:
        """Whether there is no user key."""
        return self._map.is_empty()

    def entries(self) -> ItemsView[Any, Any]:
        """The pairs; as `items()`."""
        return self._map.entries()

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the pairs."""
        return self._map.iterator()

    # -- writes, while a broadcast row is handled -----------------------------------------------------------

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a user key."""
        self._writable("put").put(key, value)

    def put_all(self, pairs: Mapping[Any, Any]) -> None:
        """Set the values of all user keys in `pairs` or, if one is refused, of none."""
        self._writable("put_all").put_all(pairs)

    def remove(self, key: Any) -> None:
        """Remove a user key, if it is there."""
        self._writable("remove").remove(key)

    def clear(self) -> None:
        """Remove everything."""
        self._writable("clear").clear()

    def __setitem__(self, key: Any, value: Any) -> None:
        self._writable("a change").put(key, value)

    def __delitem__(self, key: Any) -> None:
        del self._writable("del")[key]

    def _writable(self, what: str) -> MapState[Any, Any]:
        if not self._side.writable:
            raise StateTypeError(
                f"{what} on broadcast state {self._name!r} outside process_broadcast_element: it is the same in every "
                f"slot, so only broadcast rows, which every slot sees, may change it",
                state=self._name,
            )
        return self._map

    def __repr__(self) -> str:
        return f"<broadcast state {self._name!r}>"
