# cython: boundscheck=False, wraparound=False
"""The raw keys of the current key's entry, in the namespace of a handle.

Both parts are encoded once per key: keys do not change, so the same object is the same key.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberstate.rocksdb.raw_keys import group_part, sized
from emberstate.state.key_context import KeyContext


class CurrentKey:
    """The bytes of the current key, as they stand in raw keys; shared by all states of a backend."""

    __slots__ = ("context", "encode", "groups", "key", "part")

    context: KeyContext
    encode: Callable[[Any], bytes]
    groups: list[bytes]
    key: Any
    part: bytes

    def __init__(self, context: KeyContext, encode: Callable[[Any], bytes]) -> None:
        """`encode` encodes the keys of `context`."""
        self.context = context
        self.encode = encode
        self.groups = [group_part(group) for group in context.key_group_range]
        self.key = None
        self.part = b""

    def current(self, what: str) -> bytes:
        """Return key group and key; raises LifecycleError, naming state `what`, without a current key."""
        context: KeyContext = self.context
        context.check_key(what)
        key = context.key
        if key is not self.key:
            self.part = self.groups[context.position] + sized(self.encode(key))
            self.key = key
        return self.part


class CurrentEntry:
    """The prefix of the current key's entry in one state and namespace."""

    __slots__ = ("context", "key", "keys", "name", "namespace", "prefix", "table")

    context: KeyContext
    keys: CurrentKey
    name: str
    table: bytes
    namespace: bytes
    key: Any
    prefix: bytes

    def __init__(self, keys: CurrentKey, name: str, table: bytes, namespace: bytes) -> None:
        """`table` is the prefix of state `name`; `namespace` is `sized`."""
        self.context = keys.context
        self.keys = keys
        self.name = name
        self.table = table
        self.namespace = namespace
        self.key = None
        self.prefix = b""

    def current(self) -> bytes:
        """Return the prefix of the entry; raises LifecycleError without a current key, and on a foreign thread."""
        self.context.check_key(self.name)
        key = self.context.key
        if key is not self.key:
            self.prefix = self.table + self.keys.current(self.name) + self.namespace
            self.key = key
        return self.prefix
