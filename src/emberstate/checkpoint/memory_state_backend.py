"""`MemoryStateBackend`: state on the heap, checkpoints in the coordinator's memory. For tests and trials."""

from __future__ import annotations

from typing import Any, Final

from emberstate.checkpoint.memory_storage import MemoryStorage
from emberstate.checkpoint.state_backend import StateBackend
from emberstate.checkpoint.storage import Storage
from emberstate.errors import StateDeclarationError

#: As Flink's default.
DEFAULT_MAX_STATE_SIZE: Final = 5 * 1024 * 1024


class MemoryStateBackend(StateBackend):
    """Working state on the heap; checkpoints live as long as this object does, in the process that made it.

    What slots prepare travels to the coordinator whole, so no state of a slot may encode to more than
    `max_state_size` bytes: `StateTooLargeError` names the state, and `FsStateBackend` has no such limit.

    >>> MemoryStateBackend()
    MemoryStateBackend(max_state_size=5242880)
    """

    def __init__(self, max_state_size: int = DEFAULT_MAX_STATE_SIZE) -> None:
        if type(max_state_size) is not int or max_state_size <= 0:
            raise StateDeclarationError(f"max_state_size is a positive number of bytes, found {max_state_size!r}")
        self.max_state_size: int = max_state_size
        self._storage = MemoryStorage()

    def open_storage(self) -> Storage:
        """The same every time."""
        return self._storage

    def open_slot_storage(self) -> Storage | None:
        """None: a slot is another process in general, and is served through its tasks."""
        return None

    def scratch(self) -> MemoryStateBackend:
        """One with a memory of its own."""
        return MemoryStateBackend(self.max_state_size)

    def discard(self) -> None:
        """Forget everything."""
        self._storage.delete_all(self._storage.list())

    def __reduce__(self) -> Any:
        return MemoryStateBackend, (self.max_state_size,)  # checkpoints stay where the coordinator is

    def __repr__(self) -> str:
        return f"MemoryStateBackend(max_state_size={self.max_state_size})"
