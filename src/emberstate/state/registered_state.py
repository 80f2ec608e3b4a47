"""`RegisteredState`: a declared state and the table that holds its entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from emberstate.codec import Codec
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.descriptors import StateDescriptor

#: key, namespace, content: a value, a list of elements, or a dict of user keys; with time to live, `Stamped`
Entry = tuple[Any, Any, Any]


class EntryTable(Protocol):
    """The entries of one state, or of one timer queue, in all owned key groups.

    Thread safety: the backend's owner thread; any thread may call `entries`.
    """

    name: str

    def __len__(self) -> int:
        """The number of (key, namespace) entries."""

    def entries(self, key_group: int, point: Any) -> Iterator[Entry]:
        """Iterate over the entries that one key group had at `point`, which is live."""

    def entry_columns(self, key_group: int, point: Any) -> Iterable[EntryColumns] | None:
        """What `entries` has, as columns; None if the contents are in no columns."""

    def keys(self, namespace: Hashable) -> Iterator[Any]:
        """Iterate over the keys that have an entry in `namespace`, key groups ascending; O(all entries)."""

    def keys_and_namespaces(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the (key, namespace) pairs that have an entry, key groups ascending; O(all entries)."""

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the table is broken."""


T_co = TypeVar("T_co", bound=EntryTable, covariant=True)


@dataclasses.dataclass(frozen=True, slots=True)
class RegisteredState(Generic[T_co]):
    """A state of a backend."""

    descriptor: StateDescriptor
    namespace_codec: Codec[Any]
    table: T_co
