# cython: boundscheck=False, wraparound=False
"""`EntryEncoder`: encodes the entries of one state, or their changes, as rows of a state file.

The encoder collects a chunk of a few thousand rows in columns, then passes it to a `Rows`, which sorts the rows. Chunks
bound the time for which a writer in the background holds the interpreter lock.

Thread safety: that of `Rows`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.checkpoint.files.bindings import StateBinding
from emberstate.checkpoint.files.sorted_rows import CHUNK_BYTES, CHUNK_ROWS, Rows, check_size
from emberstate.errors import CodecError, EmberstateError, StateTypeError
from emberstate.state.cells.scalars import ScalarEncoder, encoder_of
from emberstate.state.changes import Op
from emberstate.state.key_bytes import KeyBytes

if not cython.compiled:  # the compiled module has them as C constants, in the .pxd file
    REPLACED = 1
    CLEARED = 2
    PUT = 3
    APPENDED = 5

_CHUNK_ROWS: cython.Py_ssize_t = CHUNK_ROWS
_CHUNK_BYTES: cython.Py_ssize_t = CHUNK_BYTES
_APPENDED = Op.APPENDED
_PUT = Op.PUT


class EntryEncoder:
    """Encodes the entries or changes of one state. The caller calls `flush` after the last `add_steps`."""

    __slots__ = (
        "binding", "encode_key", "encode_namespace", "encode_user_key", "encode_value", "held", "key_groups", "keys",
        "namespace", "namespace_bytes", "namespaces", "number", "ops", "rows", "stamped", "stamps", "steps",
        "user_keys", "values",
    )  # fmt: skip

    binding: StateBinding
    encode_key: ScalarEncoder
    encode_namespace: Callable[[Any], bytes]
    encode_user_key: ScalarEncoder | None
    encode_value: ScalarEncoder | None
    rows: Rows
    stamped: bool
    number: int
    namespace: Any
    namespace_bytes: bytes
    held: int
    key_groups: list[int]
    keys: list[bytes]
    namespaces: list[bytes]
    ops: list[int]
    user_keys: list[bytes | None]
    values: list[bytes | None]
    stamps: list[int | None]
    steps: list[int]

    def __init__(self, state: int, binding: StateBinding, keys: KeyBytes, rows: Rows) -> None:
        self.number = state
        self.binding = binding
        self.encode_key = ScalarEncoder(keys.encode, keys.scalar)
        self.encode_namespace = binding.namespace_codec.encode
        self.encode_value = None if binding.codec is None else encoder_of(binding.codec)
        self.encode_user_key = None if binding.user_key_codec is None else encoder_of(binding.user_key_codec)
        self.stamped = binding.ttl is not None
        self.rows = rows
        self.namespace = None
        self.namespace_bytes = b""
        self.clear()

    def clear(self) -> None:
        """Start an empty chunk."""
        self.held = 0
        self.key_groups = []
        self.keys = []
        self.namespaces = []
        self.ops = []
        self.user_keys = []
        self.values = []
        self.stamps = []
        self.steps = []

    def flush(self) -> None:
        """Pass the chunk to `rows`, and start an empty one."""
        if self.keys:
            single = self.encode_user_key is None and self.binding.stored.kind != "list"
            self.rows.add_columns(
                [
                    self.key_groups,
                    self.number,
                    self.keys,
                    self.namespaces,
                    self.ops,
                    None if self.encode_user_key is None else self.user_keys,
                    self.values,
                    self.stamps if self.stamped else None,
                    0 if single else self.steps,
                ]
            )
            self.clear()

    def add_entries(self, key_group: int, entries: Iterable[tuple[Any, Any, Any]]) -> None:
        """Add all entries of one key group as (key, namespace, content), and flush.

        The content is a value, a list, or a dict by user key, according to the kind of the state.

        Raises:
            StateTypeError: a key, namespace or value cannot be encoded; the error has state and key.
        """
        if self.binding.stored.kind == "list":
            for key, namespace, content in entries:
                self.add_steps(key_group, key, namespace, ((_APPENDED, content),))
        elif self.encode_user_key is not None:
            for key, namespace, content in entries:
                self.add_steps(
                    key_group, key, namespace, [(_PUT, user_key, value) for user_key, value in content.items()]
                )
        else:
            entries = iter(entries)
            while self._add_values(key_group, entries):
                pass
        self.flush()

    def _add_values(self, key_group: int, entries: Iterator[tuple[Any, Any, Any]]) -> bool:
        """Add a chunk of entries with one value each; return False when there are none left.

        This is the hot loop of a base, so it does not call `add_row`.
        """
        keys: list[bytes] = []
        namespaces: list[bytes] = []
        values: list[bytes | None] = []
        stamps: list[int] = []
        held: cython.Py_ssize_t = 0
        key = namespace = None
        try:
            for key, namespace, value in itertools.islice(entries, CHUNK_ROWS):
                keys.append(self.encode_key.encode(key))
                if namespace is not self.namespace:
                    self.namespace_bytes = self.encode_namespace(namespace)
                    self.namespace = namespace
                namespaces.append(self.namespace_bytes)
                if self.stamped:
                    stamps.append(value.stamp)
                    value = value.value
                if value is None:
                    values.append(None)
                    continue
                cell = self.encode_value.encode(value)  # type: ignore[union-attr]
                values.append(cell)
                held += len(cell)
                if held > _CHUNK_BYTES:
                    check_size(len(cell))
                    break
        except (StateTypeError, CodecError) as error:
            raise self.refusal(key, namespace, error) from None
        if keys:
            self.rows.add_values(key_group, self.number, keys, namespaces, values, stamps if self.stamped else None)
        return bool(keys)

    def add_steps(self, key_group: Any, key: Any, namespace: Any, steps: Any) -> None:
        """Add the rows of one change record.

        Raises:
            StateTypeError: a key, namespace or value cannot be encoded; the error has state and key.
        """
        op: cython.int
        number: cython.Py_ssize_t
        try:
            key_bytes = self.encode_key.encode(key)
            if namespace is not self.namespace:  # most records have the namespace of the one before
                self.namespace_bytes = self.encode_namespace(namespace)
                self.namespace = namespace
            for step in steps:
                op = step[0]
                if op == REPLACED:
                    self.add_row(key_group, key_bytes, op, None, step[1], True, 0)
                elif op == CLEARED:
                    self.add_row(key_group, key_bytes, op, None, None, False, 0)
                elif op == APPENDED:
                    for number, element in enumerate(step[1], start=1):
                        self.add_row(key_group, key_bytes, op, None, element, True, number)
                else:
                    user_key = self.encode_user_key.encode(step[1])  # type: ignore[union-attr]
                    if op == PUT:
                        self.add_row(key_group, key_bytes, op, user_key, step[2], True, 1)
                    else:
                        self.add_row(key_group, key_bytes, op, user_key, None, False, 1)
        except (StateTypeError, CodecError) as error:
            raise self.refusal(key, namespace, error) from None

    def add_row(
        self,
        key_group: Any,
        key_bytes: bytes,
        op: cython.int,
        user_key: Any,
        value: Any,
        has_value: cython.bint,
        step: cython.Py_ssize_t,
    ) -> None:
        """Add one row. The rows of an entry are sorted by `step` first, then by user key."""
        stamp = None
        cell = None
        size: cython.Py_ssize_t = len(key_bytes) + len(self.namespace_bytes)
        if has_value:
            if self.stamped:
                stamp = value.stamp
                value = value.value
            if value is not None and self.encode_value is not None:
                cell = self.encode_value.encode(value)
                size += len(cell)
        if user_key is not None:
            size += len(user_key)
        if size > _CHUNK_BYTES:
            check_size(size)
        self.key_groups.append(key_group)
        self.keys.append(key_bytes)
        self.namespaces.append(self.namespace_bytes)
        self.ops.append(op)
        self.user_keys.append(user_key)
        self.values.append(cell)
        self.stamps.append(stamp)
        self.steps.append(step)
        self.held += size
        if self.held >= _CHUNK_BYTES or len(self.keys) >= _CHUNK_ROWS:
            self.flush()

    def refusal(self, key: Any, namespace: Any, error: EmberstateError) -> StateTypeError:
        """Return the error for a value that cannot be encoded: it names the state, key and namespace."""
        text = f"{self.binding.label}, key {key!r}, namespace {namespace!r}: {error}"
        return StateTypeError(text, state=self.binding.stored.name, key=key).located(**error.place)


def encode_changes(encoders: dict[str, EntryEncoder], changes: Iterable[tuple[str, int, Any]]) -> None:
    """Encode records of (state, key group, (key, namespace, steps)), each with the encoder of its state, and flush."""
    encoder: EntryEncoder
    for name, group, change in changes:
        encoder = encoders[name]
        key, namespace, steps = change
        encoder.add_steps(group, key, namespace, steps)
    for encoder in encoders.values():
        encoder.flush()
