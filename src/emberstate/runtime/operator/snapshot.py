"""`OperatorSnapshot`: what an operator can be rolled back to. Any thread may read and release it."""

from __future__ import annotations

from types import TracebackType

from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot


class OperatorSnapshot:
    """What an operator can be rolled back to; a context manager that releases it."""

    __slots__ = ("broadcast", "keyed", "watermark")

    def __init__(self, keyed: KeyedStateSnapshot, broadcast: KeyedStateSnapshot | None, watermark: int) -> None:
        #: Of the operator's backend, and of its broadcast state's.
        self.keyed = keyed
        self.broadcast = broadcast
        self.watermark = watermark

    def release(self) -> None:
        """Give it up, from any thread."""
        self.keyed.release()
        if self.broadcast is not None:
            self.broadcast.release()

    def __enter__(self) -> OperatorSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
