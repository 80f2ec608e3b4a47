"""`OperatorSnapshot`: a point to roll an operator back to. Any thread may read and release it."""

from __future__ import annotations

from types import TracebackType

from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot


class OperatorSnapshot:
    """A point to roll an operator back to; as a context manager it releases itself."""

    __slots__ = ("broadcast", "keyed", "watermark")

    def __init__(self, keyed: KeyedStateSnapshot, broadcast: KeyedStateSnapshot | None, watermark: int) -> None:
        #: Of the operator's backend, and of its broadcast state's.
        self.keyed = keyed
        self.broadcast = broadcast
        self.watermark = watermark

    def release(self) -> None:
        """Release it, from any thread."""
        self.keyed.release()
        if self.broadcast is not None:
            self.broadcast.release()

    def __enter__(self) -> OperatorSnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
