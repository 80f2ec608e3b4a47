"""What a job of the checkpoint tests computes: one `Work` for each of its operators.

`counting` has the small one that most tests use, `profiles` one with states of every kind and an oracle, `states` one
for tests that bring their own states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.keygroups import KeySchema
from emberstate.state.keyed_state_backend import KeyedStateBackend

Content = dict[Any, Any]
Output = tuple[str, int, bytes]


class Work:
    """One operator: its states, and what a batch does to them in one slot."""

    name = "op"
    keys = KeySchema.from_python(str)
    groups = 8
    #: Number of slots; None: the job's.
    parallelism: int | None = None
    #: Further arguments of its `OperatorSpec`.
    spec_options: dict[str, Any] = {}  # noqa: RUF012

    def declare(self, backend: KeyedStateBackend) -> None:
        """Register the states."""
        raise NotImplementedError

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[Any]) -> list[Output]:
        """Run the rows of a batch whose keys the backend owns."""
        raise NotImplementedError

    def content(self, backend: Any) -> Content:
        """What can be seen in a backend, at the time of its `ttl_clock`."""
        raise NotImplementedError

    def rows(self, batch: int) -> Sequence[Any]:
        """The rows of a batch, where a test gives none: always the same."""
        raise NotImplementedError

    def time(self, batch: int) -> int | None:
        """Processing time and watermark of a batch, for a job with a `ManualClock`; None: what the clock says."""
        return None

    def after(self, model: Content, batch: int, rows: Sequence[Any]) -> Content:
        """The model: what `content` is after a batch, given what it was before."""
        return model

    def owns(self, backend: KeyedStateBackend, key: Any) -> bool:
        """Whether a key is in the backend's key groups."""
        return self.keys.key_group(key, self.groups) in backend.context.key_group_range
