"""The entries of one stored state, from the rows of its files. Nothing is decoded, no user class is needed.

Files are applied in order, as in a restore: the last one with an entry, an element or a user key wins. Every cell keeps
the schema of its file, since files of one chain may have older types.

Thread safety: pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.meta import StoredState
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.keygroups import KeyGroupRange
from emberstate.state.changes import Op

_REPLACED: Final = int(Op.REPLACED)
_CLEARED: Final = int(Op.CLEARED)
_PUT: Final = int(Op.PUT)
_REMOVED: Final = int(Op.REMOVED)
_APPENDED: Final = int(Op.APPENDED)

_COLUMNS: Final = ("key_group", "key", "namespace", "op", "user_key", "value", "stamp")


@dataclasses.dataclass(frozen=True, slots=True)
class WriterSchema:
    """A state's schema in some of the files, and the decisions about it."""

    stored: StoredState
    #: Path of a field → its name now; as pairs, so that schemas can be compared.
    renames: tuple[tuple[str, str], ...]
    #: The stamp of all rows; None: their own stamps, if they have any.
    stamp: int | None


class Cell(NamedTuple):
    """A value, an element, or a user key with its value: bytes, and the schema they were written with."""

    writer: WriterSchema
    user_key: bytes | None
    value: bytes | None
    stamp: int | None


class Entry(NamedTuple):
    """The content of a state for a key and a namespace."""

    key_group: int
    key: bytes
    namespace: bytes
    #: The schema that `namespace` was written with.
    writer: WriterSchema
    cells: list[Cell]


def schema_in(part: FileSlice, address: str) -> tuple[int, WriterSchema] | None:
    """Return a state's position in a file, and its schema there; None if the file does not have it."""
    decisions = part.decisions
    for position, stored in enumerate(part.reader.meta.states):
        if decisions.name_of(stored.address) == address:
            renames = tuple(sorted(decisions.fields_of(stored.address).items()))
            return position, WriterSchema(stored, renames, decisions.stamps.get(stored.address))
    return None


#: Maps a namespace or user key ("namespace", "user_key") to bytes that are equal exactly for equal ones.
Same = Callable[[WriterSchema, str, bytes], bytes]


def entries_of(
    parts: Iterable[FileSlice], address: str, groups: KeyGroupRange, same: Same
) -> list[Entry]:
    """Return the entries of a state in some key groups, by key group, key, namespace."""
    found: dict[tuple[int, bytes, bytes], tuple[WriterSchema, bytes, dict[bytes | int, Cell]]] = {}
    for part in parts:
        wanted, place = part.key_groups.intersection(groups), schema_in(part, address)
        if not wanted or place is None:
            continue
        position, writer = place
        for number, batch in part.reader.batches(wanted):
            for group, key, namespace, op, user_key, value, stamp in _rows(batch, position, wanted):
                entry = (group, key, same(writer, "namespace", namespace))
                if op == _CLEARED:
                    found.pop(entry, None)
                    continue
                _, _, cells = found.setdefault(entry, (writer, namespace, {}))
                cell = Cell(writer, user_key, value, stamp if writer.stamp is None else writer.stamp)
                if op == _REPLACED:
                    cells[0] = cell
                elif op == _APPENDED:
                    cells[len(cells)] = cell
                elif op in (_PUT, _REMOVED) and user_key is not None:
                    name = same(writer, "user_key", user_key)
                    if op == _PUT:
                        cells[name] = cell
                    else:
                        cells.pop(name, None)
                else:
                    raise part.reader.corruption(number, f"step {op} of {writer.stored.label}")
    return [
        Entry(group, key, namespace, writer, list(cells.values()))
        for (group, key, _), (writer, namespace, cells) in sorted(found.items(), key=_order)
        if cells
    ]


def _order(item: tuple[tuple[int, bytes, bytes], object]) -> tuple[int, bytes, bytes]:
    return item[0]


def _rows(batch: pa.RecordBatch, position: int, groups: KeyGroupRange) -> Iterable[tuple[Any, ...]]:
    group = batch.column("key_group")
    ours = pc.and_(pc.greater_equal(group, groups.start), pc.less_equal(group, groups.end))
    rows = batch.filter(pc.and_(ours, pc.equal(batch.column("state"), position)))
    return zip(*(rows.column(name).to_pylist() for name in _COLUMNS), strict=True)
