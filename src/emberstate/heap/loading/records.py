"""`RecordLoader`: fills a column table from the rows of a file (`state.row_loading`), a run at a time.

Keys are decoded and encoded again, so that only canonical bytes get into the table's index, whoever wrote the file.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from typing import Any

from emberstate.heap.columns.column_table import ColumnTable
from emberstate.state.key_bytes import key_bytes
from emberstate.state.row_columns import BadRow, RowColumns, StoredRow
from emberstate.state.row_loading import FileRules, RowDecoders
from emberstate.state.ttl.stamped import Stamped

_REPLACED = 1
_CLEARED = 2


class RecordLoader:
    """Loads the rows of one state of one file; a `RowLoader`."""

    def __init__(self, table: ColumnTable, decoders: RowDecoders, rules: FileRules) -> None:
        self._table = table
        self._decoders = decoders
        self._rules = rules
        self._encode = key_bytes(table.context.key_schema).encode
        self._last: tuple[int, bytes, bytes] | None = None
        self.row = 0

    def load(self, columns: RowColumns, start: int, stop: int) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        group = columns.key_group(start)
        keys: list[bytes] = []
        namespaces: list[Any] = []
        contents: list[Any] = []
        for number, stored in enumerate(columns.rows(start, stop)):
            self.row = start + number
            self._check_order(group, stored)
            key, namespace = self._place(group, stored)
            step = stored[2]
            if stored[3] is not None:
                raise BadRow("a value has a user key")
            if step == _REPLACED:
                if self._rules.base and self._table.has(key, namespace):
                    raise BadRow("the entry exists already")
                keys.append(key)
                namespaces.append(namespace)
                contents.append(self._content(stored))
            elif step == _CLEARED and not self._rules.base:
                if stored[4] is not None or stored[5] is not None:
                    raise BadRow("a cleared entry has a user key, a value or a stamp")
                self._table.discard(key, namespace)
            else:
                kind = "base" if self._rules.base else "delta"
                raise BadRow(f"step {step} does not belong in a {kind} of such a state")
        self._table.put_all(keys, [group] * len(keys), namespaces, contents)

    def _check_order(self, group: int, stored: StoredRow) -> None:
        here = (group, stored[0], stored[1])
        if self._last is not None and self._last[0] == group and here <= self._last:
            raise BadRow("keys and namespaces do not ascend, or an entry occurs twice")
        self._last = here

    def _place(self, group: int, stored: StoredRow) -> tuple[bytes, Any]:
        key = self._decoders.key.decode(stored[0])
        found = self._table.context.grouper(key)
        if found != group:
            raise BadRow(f"key {key!r} belongs to key group {found}")
        return self._encode(key), self._decoders.namespace.decode(stored[1])

    def _content(self, stored: StoredRow) -> Any:
        value = None if stored[4] is None else self._decoders.value.decode(stored[4])
        if value is None:
            raise BadRow("a record is null")
        if (stored[5] is not None) != self._rules.stamped:
            raise BadRow("the stamp is missing" if self._rules.stamped else "there is a stamp, the state has none")
        if not self._rules.keeps_stamps:
            return value
        decided = self._rules.decided_stamp
        stamp = stored[5] if decided is None else decided
        assert stamp is not None
        return Stamped(value, stamp)
