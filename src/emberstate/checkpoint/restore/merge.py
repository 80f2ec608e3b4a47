"""`merge_deltas`: several deltas become one with the same effect, without superseded steps.

It works on the rows' bytes; nothing is decoded, no user class is needed.

The state below the deltas is unknown here. So a REMOVED stays even if an earlier delta PUT the user key, since the
state below may have it too. In a merged file a REMOVED may therefore find nothing to remove; the file says how many
deltas it was made of.

Thread safety: pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from emberstate.checkpoint.files.meta import FileMeta, StoredState, library_version
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.sorted_rows import Rows
from emberstate.checkpoint.files.writer import WrittenFile, assemble
from emberstate.checkpoint.restore.file_slice import FileSlice, as_slice
from emberstate.errors import RestoreRefusedError
from emberstate.keygroups import KeyGroupRange
from emberstate.state.changes import Op

_Cell = bytes | None
_Entry = tuple[int, int, bytes, bytes]

_REPLACED: Final = int(Op.REPLACED)
_CLEARED: Final = int(Op.CLEARED)
_REMOVED: Final = int(Op.REMOVED)
_APPENDED: Final = int(Op.APPENDED)


class _Steps:
    """The steps of one entry."""

    __slots__ = ("appended", "cleared", "last", "user_keys")

    def __init__(self) -> None:
        self.cleared = False
        self.last: tuple[_Cell, int | None] | None = None
        self.appended: list[tuple[_Cell, int | None]] = []
        self.user_keys: dict[_Cell, tuple[int, _Cell, int | None]] = {}

    def add(self, op: int, user_key: _Cell, value: _Cell, stamp: int | None) -> None:
        if op == _CLEARED:
            self.__init__()  # type: ignore[misc]
            self.cleared = True
        elif op == _REPLACED:
            self.cleared = False
            self.last = (value, stamp)
        elif op == _APPENDED:
            self.appended.append((value, stamp))
        elif op == _REMOVED and self.cleared:
            self.user_keys.pop(user_key, None)  # a CLEARED leaves nothing to remove
        else:
            self.user_keys[user_key] = (op, value, stamp)

    def write(self, rows: Rows, entry: _Entry) -> None:
        if self.cleared:
            rows.add(*entry, _CLEARED, None, None, None, 0)
        if self.last is not None:
            rows.add(*entry, _REPLACED, None, *self.last, 0)
        for number, (value, stamp) in enumerate(self.appended, start=1):
            rows.add(*entry, _APPENDED, None, value, stamp, number)
        for user_key, (op, value, stamp) in self.user_keys.items():
            rows.add(*entry, op, user_key, value, stamp, 1)


def merge_deltas(deltas: Sequence[FileSlice | StateFileReader]) -> WrittenFile:
    """Return one delta with the effect of several, given in their order.

    Takes only the slices' key groups. The decisions about the states must be the same for all, and hold for the merged
    file too.

    Raises:
        RestoreRefusedError: the deltas declare a state differently, or have different decisions. Write a base instead.
    """
    parts = [part for part in map(as_slice, deltas) if part.key_groups]
    meta = _merged_meta(parts)
    position_of = {state.identity: position for position, state in enumerate(meta.states)}
    entries: dict[_Entry, _Steps] = {}
    for part in parts:
        file, wanted = part.reader, part.key_groups
        positions = [position_of[state.identity] for state in file.meta.states]
        for number, batch in file.batches(wanted):
            names = ("key_group", "state", "key", "namespace", "op", "user_key", "value", "stamp")
            columns = [batch.column(name).to_pylist() for name in names]
            for group, state, key, namespace, op, user_key, value, stamp in zip(*columns, strict=True):
                if state >= len(positions) or not _REPLACED <= op <= _APPENDED:
                    raise file.corruption(number, f"step {op} of state {state}, there are {len(positions)} states")
                if not wanted.start <= group <= wanted.end:
                    continue
                entry = (group, positions[state], key, namespace)
                steps = entries.get(entry)
                if steps is None:
                    steps = entries[entry] = _Steps()
                steps.add(op, user_key, value, stamp)
    rows = Rows()
    for entry, steps in entries.items():
        steps.write(rows, entry)
    return assemble(meta, rows)


def _merged_meta(parts: Sequence[FileSlice]) -> FileMeta:
    metas = [part.reader.meta for part in parts]
    if not metas or any(meta.kind != "delta" for meta in metas):
        raise RestoreRefusedError(f"only deltas can be merged, found {[meta.kind for meta in metas]}")
    first = metas[0]
    states: dict[tuple[bool, str], StoredState] = {}
    for meta in metas:
        if (meta.key_schema, meta.max_parallelism) != (first.key_schema, first.max_parallelism):
            raise RestoreRefusedError("deltas with different key schemas or max parallelisms cannot be merged")
        for state in meta.states:
            if states.setdefault(state.identity, state) != state:
                raise RestoreRefusedError(
                    f"{state.kind} state {state.name!r} was declared differently in between: these deltas "
                    f"cannot be one file. Write a base instead.",
                    state=state.name,
                )
    other = next((part for part in parts if part.decisions != parts[0].decisions), None)
    if other is not None:
        raise RestoreRefusedError(
            "states were renamed, dropped or migrated between these deltas: they cannot be one file. Write a base "
            "instead.",
            path=other.reader.name,
            expected=parts[0].decisions.to_dict(),
            found=other.decisions.to_dict(),
        )
    ranges = [part.key_groups for part in parts]
    groups = KeyGroupRange(min(taken.start for taken in ranges), max(taken.end for taken in ranges))
    in_order = tuple(states[identity] for identity in sorted(states))
    merged = sum(meta.merged for meta in metas)
    return dataclasses.replace(first, key_groups=groups, states=in_order, merged=merged, library=library_version())
