"""`StateBackend`: what a user chooses: where the working state lives, and where its checkpoints are kept.

A state backend is a small value that travels from the driver to the slots. It opens nothing by itself.

Thread safety: immutable, but for the memory that a `MemoryStateBackend` keeps checkpoints in, which is safe.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

from emberstate.checkpoint.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.checkpoint.slot_checkpoint import SlotCheckpoint
from emberstate.checkpoint.storage import Storage
from emberstate.heap.heap_keyed_state_backend import HeapKeyedStateBackend
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, KeyGroupRange, KeySchema
from emberstate.state.keyed_state_backend import KeyedStateBackend

Declare = Callable[[KeyedStateBackend], None]


class StateBackend(abc.ABC):
    """Working state and a place for checkpoints."""

    #: The largest a state may be in one slot's checkpoint, in bytes; None: as large as it likes.
    max_state_size: int | None = None

    @abc.abstractmethod
    def open_storage(self) -> Storage:
        """The checkpoints, for the coordinator and for readers."""

    @abc.abstractmethod
    def open_slot_storage(self) -> Storage | None:
        """The same for a slot, which may be another process; None if it cannot reach them."""

    @abc.abstractmethod
    def scratch(self) -> StateBackend:
        """The same kind of backend, with an empty place of its own for checkpoints that are soon discarded."""

    @abc.abstractmethod
    def discard(self) -> None:
        """Delete all checkpoints and savepoints: for what `scratch` made."""

    def make_keyed_backend(
        self,
        key_schema: KeySchema,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        key_group_range: KeyGroupRange | None = None,
    ) -> KeyedStateBackend:
        """An empty keyed state backend for a range of key groups (default: all)."""
        return HeapKeyedStateBackend(key_schema, max_parallelism=max_parallelism, key_group_range=key_group_range)

    def make_slot(
        self,
        key_schema: KeySchema,
        declare: Declare,
        *,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        policy: ChainPolicy = DEFAULT_POLICY,
    ) -> SlotCheckpoint:
        """A slot's side of the checkpoints. `declare(backend)` registers the states, whenever a backend is made."""

        def make(groups: KeyGroupRange) -> KeyedStateBackend:
            backend = self.make_keyed_backend(key_schema, max_parallelism=max_parallelism, key_group_range=groups)
            declare(backend)
            return backend

        return SlotCheckpoint(make, self.open_slot_storage(), policy=policy, state_limit=self.max_state_size)
