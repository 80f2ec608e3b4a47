# cython: boundscheck=False, wraparound=False
"""Where the pairs of an entry are: those of the current key, in the namespace of a handle.

Both parts of the way are made once as long as the key stays: keys do not change, so the same object is the
same key.

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
        """For the keys of a context, encoded by `encode`."""
        self.context = context
        self.encode = encode
        self.groups = [group_part(group) for group in context.key_group_range]
        self.key = None
        self.part = b""

    def current(self, what: str) -> bytes:
        """Key group and key; LifecycleError, saying that `what` was used, without a current key."""
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
        """Of the state `name`, whose raw keys begin with `table`, in a namespace, given `sized`."""
        self.context = keys.context
        self.keys = keys
        self.name = name
        self.table = table
        self.namespace = namespace
        self.key = None
        self.prefix = b""

    def current(self) -> bytes:
        """What all pairs of the entry begin with; LifecycleError without a current key, and on a foreign thread."""
        self.context.check_key(self.name)
        key = self.context.key
        if key is not self.key:
            self.prefix = self.table + self.keys.current(self.name) + self.namespace
            self.key = key
        return self.prefix
