"""`EntryColumns`: entries of a state, or their changes, as columns; what a table with columns gives to a file's writer.

Buffers are anything with the buffer protocol, in the machine's order of bytes. A table that has no columns gives
nothing of the kind, and its entries are taken one by one.

Thread safety: the columns belong to whoever got them; no table changes them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from emberstate.state.cells.records import FieldValues


@dataclasses.dataclass(frozen=True, slots=True)
class EntryColumns:
    """Entries with one record each, in any order."""

    #: int32 for each entry.
    key_groups: Any
    #: The bytes of the keys (`KeyBytes`), and one int64 more than there are entries.
    key_data: Any
    key_offsets: Any
    #: Namespaces, and int32 for each entry: the position of its own.
    namespaces: Sequence[Any]
    namespace_numbers: Any
    #: A byte for each entry: 0 if it was removed, and then its fields do not count.
    alive: Any
    #: The fields of the records, in the order of their class.
    fields: Sequence[FieldValues]
    #: int64 for each entry of a state that expires.
    stamps: Any = None

    def __len__(self) -> int:
        return len(memoryview(self.key_offsets)) - 1
