"""`StateColumns`: one stored state as an Arrow table: a row per value, element, user key or timer, with typed columns.

The types are those of the newest file with the state. Older rows are decoded with their own types and matched by the
present names of fields; missing fields are null.

Thread safety: one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa

from emberstate.checkpoint.files.field_paths import field_paths
from emberstate.checkpoint.files.meta import TIMERS, StoredState
from emberstate.checkpoint.read.arrow_values import ColumnProfile, arrow_type, needs_profile, plain_decoder
from emberstate.checkpoint.read.entries import Cell, Entry, WriterSchema
from emberstate.codec import TypeSchema
from emberstate.errors import CodecError, CorruptionError, RestoreRefusedError
from emberstate.keygroups import KeySchema, KeyType
from emberstate.state.key_bytes import key_bytes

_INSTANT: Final = pa.timestamp("us", "UTC")

_KEY_TYPES: Final[dict[str, Any]] = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": _INSTANT,
    "timestamp_ntz": pa.timestamp("us"),
}

T = TypeVar("T")


class StateColumns:
    """The columns of a state, and the decoders of its cells."""

    def __init__(self, state: StoredState, writers: Iterable[WriterSchema], key_schema: tuple[str, ...]) -> None:
        """`state` as last declared; `writers` are all its schemas in the files."""
        self.state = state
        self._writers = list(writers)
        self._key_names = ["key"] if len(key_schema) == 1 else [f"key_{i}" for i in range(len(key_schema))]
        keys = KeySchema(key_schema)
        self._key_types = [_key_type(kind) for kind in keys.types]
        self._decode_key = key_bytes(keys).decode
        self._profiles = {part: ColumnProfile() for part in ("namespace", "user_key", "value")}
        self._decoders: dict[tuple[WriterSchema, str], Callable[[bytes], Any]] = {}
        self._alike = {
            part: all(_schema(writer.stored, part) == _schema(state, part) for writer in self._writers)
            for part in ("namespace", "user_key")
        }

    @property
    def needs_profile(self) -> bool:
        """Whether `look_at` must see all entries before there is a schema."""
        return any(needs_profile(_schema(self.state, part)) for part in self._profiles)

    def same(self, writer: WriterSchema, part: str, data: bytes) -> bytes:
        """Return bytes that are equal exactly for equal namespaces or user keys; for `entries_of`."""
        if self._alike[part]:
            return data
        return msgspec.msgpack.encode(self._decode(writer, part, data))

    def look_at(self, entries: Iterable[Entry]) -> None:
        """Make the types of the columns fit these entries."""
        for entry in entries:
            self._decode(entry.writer, "namespace", entry.namespace)
            for cell in entry.cells:
                self._decode(cell.writer, "user_key", cell.user_key)
                self._decode(cell.writer, "value", cell.value)

    @property
    def profiles(self) -> dict[str, ColumnProfile]:
        """The profiles so far, for the columns of the same state in another process."""
        return dict(self._profiles)

    def take_profiles(self, profiles: Mapping[str, ColumnProfile]) -> None:
        """Use the profiles of other columns of the same state. Call it before anything is decoded."""
        self._profiles.update(profiles)

    def key(self, entry: Entry) -> Any:
        """Return the key of an entry."""
        return self._guarded(self._decode_key, entry.key, "key")

    def timers(self, entry: Entry) -> list[tuple[int, str, Any]]:
        """Return (time, name, namespace) of an entry of a timer queue, namespaces as plain values."""
        decoded = [self._decode(cell.writer, "user_key", cell.user_key) for cell in entry.cells]
        return [(timer["_0"], timer["_1"], timer["_2"]) for timer in decoded]

    def schema(self) -> pa.Schema:
        """Return the columns and their types."""
        columns = dict(zip(self._key_names, self._key_types, strict=True))
        user_key, profile = self.state.user_key, self._profiles["user_key"]
        if self.state.kind == TIMERS:
            assert user_key is not None
            namespace = arrow_type(user_key.items[2], profile, "$[2]")
            columns |= {"time": _INSTANT, "name": pa.string(), "namespace": namespace}
            return pa.schema(list(columns.items()))
        columns["namespace"] = arrow_type(self.state.namespace, self._profiles["namespace"])
        if user_key is not None:
            columns["user_key"] = arrow_type(user_key, profile)
        if self.state.kind == "list":
            columns["position"] = pa.int64()
        assert self.state.type is not None
        columns["value"] = arrow_type(self.state.type, self._profiles["value"])
        if self.state.ttl is not None:
            columns["stamp"] = _INSTANT
        return pa.schema(list(columns.items()))

    def batch(self, entries: Iterable[Entry], schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of some entries."""
        columns: dict[str, list[Any]] = {name: [] for name in schema.names}
        for entry in entries:
            keys = self.key_columns(entry)
            for position, cell in enumerate(entry.cells):
                values = {**keys, **self.row(entry, cell, position)}
                for name, column in columns.items():
                    column.append(values[name])
        return self.columns_to_batch(columns, schema)

    def key_columns(self, entry: Entry) -> dict[str, Any]:
        """Return the key of an entry, by the names of its columns."""
        key = self.key(entry)
        return dict(zip(self._key_names, (key,) if len(self._key_names) == 1 else key, strict=True))

    def row(self, entry: Entry, cell: Cell, position: int) -> Mapping[str, Any]:
        """Return a cell of an entry, by the names of its columns, without those of the key."""
        return (self._timer_row if self.state.kind == TIMERS else self._state_row)(entry, cell, position)

    def value(self, cell: Cell) -> Any:
        """Return the value of a cell, as plain data."""
        return self._decode(cell.writer, "value", cell.value)

    def columns_to_batch(self, columns: Mapping[str, list[Any]], schema: pa.Schema) -> pa.RecordBatch:
        """Return a batch of columns that were made from `row`."""
        return pa.RecordBatch.from_arrays([self._array(columns[field.name], field) for field in schema], schema=schema)

    def _state_row(self, entry: Entry, cell: Cell, position: int) -> Mapping[str, Any]:
        return {
            "namespace": self._decode(entry.writer, "namespace", entry.namespace),
            "user_key": self._decode(cell.writer, "user_key", cell.user_key),
            "position": position,
            "value": self._decode(cell.writer, "value", cell.value),
            "stamp": cell.stamp,
        }

    def _timer_row(self, entry: Entry, cell: Cell, position: int) -> Mapping[str, Any]:
        timer = self._decode(cell.writer, "user_key", cell.user_key)
        return {"time": timer["_0"], "name": timer["_1"], "namespace": timer["_2"]}

    def _array(self, values: list[Any], field: pa.Field) -> pa.Array:
        try:
            return pa.array(values, field.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise RestoreRefusedError(
                f"{self.state.label}: column {field.name!r} has values that are no {field.type}: {error!s:.200}. They "
                f"were written under an older type; let the job write a base, and read a checkpoint after that",
                state=self.state.name,
                column=field.name,
            ) from None

    def _decode(self, writer: WriterSchema, part: str, data: bytes | None) -> Any:
        if data is None:
            return None
        decoder = self._decoders.get((writer, part))
        if decoder is None:
            decoder = self._decoders[writer, part] = self._decoder(writer, part)
        return self._guarded(decoder, data, part)

    def _decoder(self, writer: WriterSchema, part: str) -> Callable[[bytes], Any]:
        stored = _schema(writer.stored, part)
        if stored is None:
            return bytes
        present = _schema(self.state, part)
        # If a key still has a field, its rename is for the value.
        still = set() if part == "value" or present is None else set(field_paths(present))
        renames = {path: name for path, name in writer.renames if path not in still}
        return plain_decoder(stored, renames, self._profiles[part])

    def _guarded(self, decode: Callable[[bytes], T], data: bytes, part: str) -> T:
        try:
            return decode(data)
        except CodecError as error:
            raise CorruptionError(f"{self.state.label}, {part}: {error}", state=self.state.name) from None


def _schema(stored: StoredState, part: str) -> TypeSchema | None:
    if part == "value":
        return stored.type
    return stored.namespace if part == "namespace" else stored.user_key


def _key_type(kind: KeyType) -> Any:
    return _KEY_TYPES.get(kind.name) or pa.decimal128(kind.precision, kind.scale)
