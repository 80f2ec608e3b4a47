"""`RestoredGroups`: backends with one state of one key group each, restored on demand and cached.

Thread safety: one thread at a time; a cached backend moves to the thread that uses it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable
from typing import Any, Final

from emberstate.checkpoint.files.bindings import bindings_of
from emberstate.checkpoint.manifest.catalogue import naming_missing
from emberstate.checkpoint.manifest.decisions import FileDecisions
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.restore.check import check_restore
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import load
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import StateDescriptor
from emberstate.storage.interface import Storage

#: How many backends are cached.
CACHED_GROUPS: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class _Restored:
    descriptor: StateDescriptor
    namespace_type: Any
    backend: HeapKeyedStateBackend


class RestoredGroups:
    """The cache of one reader."""

    def __init__(
        self, storage: Storage, manifest: Manifest, parts: Callable[[str, KeyGroupRange], list[FileSlice]]
    ) -> None:
        """`parts(operator, key_groups)` returns the state files of some key groups, in the order to apply them."""
        self._storage = storage
        self._manifest = manifest
        self._parts = parts
        self._backends: collections.OrderedDict[tuple[str, str, int], _Restored] = collections.OrderedDict()
        #: How many backends were restored so far.
        self.restored = 0

    @property
    def cached(self) -> int:
        """How many backends are cached now."""
        return len(self._backends)

    def backend(
        self, operator: Operator, descriptor: StateDescriptor, namespace: Hashable, namespace_type: Any, group: int
    ) -> HeapKeyedStateBackend:
        """Return a backend with this state of one key group, owned by the current thread."""
        where = (operator.name, descriptor.name, group)
        cached = self._backends.get(where)
        if cached is not None and cached.descriptor is descriptor and cached.namespace_type is namespace_type:
            self._backends.move_to_end(where)
            cached.backend.context.own()
            return cached.backend
        groups = KeyGroupRange(group, group)
        backend = HeapKeyedStateBackend(
            KeySchema(operator.key_schema), max_parallelism=operator.max_parallelism, key_group_range=groups
        )
        self._set_clock(backend)
        backend.get_internal_state(descriptor, namespace, namespace_type=namespace_type)
        parts = [_only(part, descriptor.name) for part in self._parts(operator.name, groups)]
        verdict = check_restore(
            [(part.reader.meta, part.decisions) for part in parts],
            bindings_of(backend),
            key_schema=backend.context.key_schema,
            max_parallelism=backend.context.max_parallelism,
            ttl_clock=backend.ttl_clock,
        )
        verdict.refuse()
        with naming_missing(self._storage, self._manifest):
            load(parts, backend, verdict)
        self.restored += 1
        self._backends[where] = _Restored(descriptor, namespace_type, backend)
        if len(self._backends) > CACHED_GROUPS:
            self._evict()
        return backend

    def clear(self) -> None:
        """Close all backends."""
        while self._backends:
            self._evict()

    def _evict(self) -> None:
        oldest = self._backends.popitem(last=False)[1].backend
        oldest.context.own()
        oldest.close()

    def _set_clock(self, backend: HeapKeyedStateBackend) -> None:
        batch, clock = self._manifest.times, backend.ttl_clock
        clock.processing_time = self._manifest.created if batch is None else batch.processing_time
        watermark = None if batch is None else batch.watermark
        clock.event_time = -(2**63) if watermark is None else watermark


def _only(part: FileSlice, state: str) -> FileSlice:
    """Return the slice with all other states dropped."""
    names = (part.decisions.name_of(stored.address) for stored in part.reader.meta.states)
    others = FileDecisions(frozenset(name for name in names if name is not None and name != state))
    return FileSlice(part.reader, part.key_groups, part.decisions.then(others))
