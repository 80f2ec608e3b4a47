"""Filling a state from the rows of a file (`state.row_loading`), for a backend that was never snapshotted.

Every part is decoded by the file's types and encoded by the state's: so whatever the bytes are, what is stored is
sound, and a type that has evolved is migrated.

An invalid row raises CodecError, and `row` is then its number in the batch.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from emberstate.errors import CodecError, StateTypeError
from emberstate.rocksdb.raw_keys import entry_prefix, key_part, sized
from emberstate.rocksdb.state_table import LIST, MAP, RocksDBStateTable
from emberstate.state.changes import Op
from emberstate.state.row_columns import RowColumns
from emberstate.state.row_loading import FileRules, RowDecoders
from emberstate.state.ttl.stamped import Stamped

if TYPE_CHECKING:
    from emberstate.rocksdb.timer_queue import RocksDBTimerQueue


class RocksDBRowLoader:
    """Loads the rows of one state of one file; a `RowLoader`."""

    __slots__ = (
        "_cleared", "_decoders", "_entry", "_fresh", "_group", "_key", "_last", "_last_user_key", "_namespace",
        "_namespace_part", "_odd", "_puts", "_queue", "_removals", "_rules", "_seen", "_store", "_table", "row",
    )  # fmt: skip

    def __init__(
        self, table: RocksDBStateTable, queue: RocksDBTimerQueue | None, decoders: RowDecoders, rules: FileRules
    ) -> None:
        """Load into `table`, which is that of `queue` if it is not None."""
        self._table = table
        self._queue = queue
        self._decoders = decoders
        self._rules = rules
        self._store = table.tables.store
        #: The row of the batch that is being loaded.
        self.row = 0
        self._group = -1
        self._last: tuple[bytes, bytes] | None = None
        self._namespace: bytes | None = None  # the file's bytes of `_namespace_part`
        self._namespace_part = b""
        self._key: Any = None
        self._entry = b""
        self._fresh = False  # no row of the entry was loaded yet
        self._cleared = False
        self._puts = 0
        self._removals = 0
        self._last_user_key: bytes | None = None
        self._odd = False  # the state encodes a user key of the entry in other bytes than the file
        self._seen: set[bytes] = set()  # the user keys of the entry, in a delta, whose writer held them in memory

    def load(self, columns: RowColumns, start: int, stop: int) -> None:
        """Load a run: the rows [start, stop), all of one key group."""
        key_group = columns.key_group(start)
        if key_group != self._group:
            self._group, self._last = key_group, None
        # An entry that continues in the next batch is checked in parts.
        rows = columns.rows(start, stop)
        for self.row, (key, namespace, number, user_key, value, stamp) in enumerate(rows, start):
            here = (key, namespace)
            if here != self._last:
                self._end_entry()
                if self._last is not None and here < self._last:
                    raise CodecError("keys and namespaces do not ascend, or an entry occurs twice")
                self._begin_entry(here)
            elif self._table.shape not in (LIST, MAP):
                raise CodecError("the entry has more than one value")
            try:
                step = Op(number)
            except ValueError:
                raise CodecError(f"there is no step {number}") from None
            if step is Op.CLEARED:
                self._clear(user_key, value, stamp)
            elif self._table.shape == MAP:
                self._take_user_key(step, user_key, value, stamp)
            else:
                self._take_value(step, user_key, value, stamp)
            self._fresh = False
        self._end_entry()

    def _begin_entry(self, here: tuple[bytes, bytes]) -> None:
        key, namespace = here
        tables = self._table.tables
        self._last = here
        self._key = self._decoders.key.decode(key)
        group = tables.context.grouper(self._key)
        if group != self._group:
            raise CodecError(f"key {self._key!r} belongs to key group {group}")
        if namespace != self._namespace:
            decoded = self._decoders.namespace.decode(namespace)
            self._namespace_part = sized(self._table.namespace_codec.encode(decoded))
            self._namespace = namespace
        part = key_part(self._group, tables.encode_key(self._key))
        self._entry = entry_prefix(self._table.prefix, part, self._namespace_part)
        self._fresh = True
        self._cleared = False
        self._odd = False
        self._seen.clear()
        self._last_user_key = None
        if self._rules.base and not self._table.is_absent(self._entry):
            raise CodecError("the entry exists already")

    def _end_entry(self) -> None:
        """Reject an entry that lost its last user key without being cleared."""
        removals, puts = self._removals, self._puts
        self._removals = self._puts = 0
        # A base leaves out what has expired: then a removal finds nothing.
        if removals and not puts and not self._rules.stamped and self._table.is_absent(self._entry):
            raise CodecError("all user keys were removed, and the entry was not")

    def _clear(self, user_key: bytes | None, value: bytes | None, stamp: int | None) -> None:
        if self._rules.base or not self._fresh:
            raise CodecError("an entry is cleared after its beginning, or in a base")
        if user_key is not None or value is not None or stamp is not None:
            raise CodecError("a cleared entry has a user key, a value or a stamp")
        self._cleared = True
        for raw, _ in self._store.scan(self._entry):
            if self._queue is None:
                self._store.delete(raw)
            else:
                self._queue.unload(self._group, self._key, self._timer(raw[len(self._entry) :]))

    def _take_value(self, step: Op, user_key: bytes | None, value: bytes | None, stamp: int | None) -> None:
        """Load a value, or an element."""
        is_list = self._table.shape == LIST
        if step is not (Op.APPENDED if is_list else Op.REPLACED) or user_key is not None or value is None:
            what = "no element of a list" if is_list else "no value, or one with a user key"
            raise CodecError(f"{what}: step {int(step)}")
        content = self._content(value, stamp)
        if is_list:
            self._store.append(self._entry, content)
        else:
            self._store.put(self._entry, content)

    def _take_user_key(self, step: Op, user_key: bytes | None, value: bytes | None, stamp: int | None) -> None:
        """Load a user key put or removed."""
        removed = step is Op.REMOVED
        if user_key is None or not (step is Op.PUT or (removed and not self._rules.base and not self._cleared)):
            raise CodecError(f"step {int(step)} does not belong here, or its user key is missing")
        if self._last_user_key is not None and user_key <= self._last_user_key:
            raise CodecError("user keys do not ascend, or one occurs twice")
        self._last_user_key = user_key
        if (removed or self._queue is not None) and (value is not None or stamp is not None):
            raise CodecError("a row without a value has a value or a stamp")
        codec = self._table.user_key_codec
        assert codec is not None
        decoded = self._decoders.user_key.decode(user_key)
        encoded = codec.encode(decoded)
        raw = self._entry + encoded
        self._check_once(raw, as_stored=encoded == user_key)
        if removed:
            self._removals += 1
            if self._rules.exact and not self._rules.stamped and self._store.get(raw) is None:
                raise CodecError(f"user key {decoded!r} is removed and does not exist")
        else:
            self._puts += 1
        if self._queue is not None:
            (self._queue.unload if removed else self._queue.load)(self._group, self._key, decoded)
        elif removed:
            self._store.delete(raw)
        else:
            self._store.put(raw, self._content(value, stamp))

    def _check_once(self, raw: bytes, *, as_stored: bool) -> None:
        """Reject two user keys that the state encodes alike."""
        if self._rules.base:
            self._odd = self._odd or not as_stored
            twice = self._odd and self._store.get(raw) is not None  # all pairs of the entry are of this file
        else:
            twice = raw in self._seen
            self._seen.add(raw)
        if twice:
            raise CodecError("a user key occurs twice, encoded differently")

    def _content(self, value: bytes | None, stamp: int | None) -> bytes:
        """Return a value of the file as the state stores it."""
        rules = self._rules
        if (stamp is not None) != rules.stamped:
            raise CodecError("the stamp is missing" if rules.stamped else "there is a stamp, the state has none")
        decoded = None if value is None else self._decoders.value.decode(value)
        if rules.keeps_stamps:
            when = stamp if rules.decided_stamp is None else rules.decided_stamp
            assert when is not None  # the caller decides on a stamp for rows without
            decoded = Stamped(decoded, when)
        try:
            return self._table.encode(decoded)
        except StateTypeError as error:
            raise CodecError(str(error)) from None

    def _timer(self, encoded: bytes) -> tuple[int, str, Any]:
        codec = self._table.user_key_codec
        assert codec is not None
        timer: tuple[int, str, Any] = codec.decode(encoded)
        return timer
