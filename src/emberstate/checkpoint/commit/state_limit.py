"""`StateLimit`: how large a state may be in a slot's checkpoint, if the coordinator keeps checkpoints in memory.

Thread safety: one thread, the slot's owner.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import WrittenFile
from emberstate.checkpoint.manifest.open_files import open_state_file
from emberstate.errors import StorageError

_CELLS = ("key", "namespace", "user_key", "value")


class StateLimit:
    """A limit in encoded bytes per state."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[str, dict[str, int]] = {}  # file of the chain → bytes of its states

    def fits(self, task: SlotTask, delta: WrittenFile) -> bool:
        """Return whether every state is within the limit if the task's chain gets the delta.

        Counts superseded rows too, so it may return False for a state that is within the limit.
        """
        total: Counter[str] = Counter(_state_sizes(StateFileReader.of_bytes(delta.data)))
        for file in task.chain.files:
            if file.id not in self._sizes:
                self._sizes[file.id] = _state_sizes(open_state_file(None, file, contents=task.contents))
            total.update(self._sizes[file.id])
        self._sizes = {file.id: self._sizes[file.id] for file in task.chain.files}
        return max(total.values(), default=0) <= self._limit

    def check(self, task: SlotTask, base: WrittenFile) -> None:
        """Raise `StorageError` if the largest state of a base exceeds the limit."""
        sizes = _state_sizes(StateFileReader.of_bytes(base.data))
        name = max(sizes, key=lambda state: sizes[state], default="")
        if sizes and sizes[name] > self._limit:
            raise StorageError(
                f"state {name!r} of operator {task.operator!r} has {sizes[name]:,} bytes in one slot; a "
                f"MemoryStateBackend keeps checkpoints in the coordinator's memory and accepts at most "
                f"{self._limit:,} bytes per state. Use FsStateBackend(uri), or MemoryStateBackend(max_state_size=…) if "
                f"there is enough memory.",
                operator=task.operator,
                slot=task.slot,
                state=name,
                option="max_state_size",
                expected=self._limit,
                found=sizes[name],
            )


def _state_sizes(reader: StateFileReader) -> dict[str, int]:
    """Return the encoded bytes of every state's rows: keys, namespaces, user keys and values, before compression."""
    sizes = {state.name: 0 for state in reader.meta.states}
    names = [state.name for state in reader.meta.states]
    for _, batch in reader.batches():
        bytes_of_rows = pa.array([0] * len(batch), pa.int64())
        for cell in _CELLS:
            length = pc.fill_null(pc.binary_length(batch.column(cell)), 0)
            bytes_of_rows = pc.add(bytes_of_rows, pc.cast(length, pa.int64()))
        table = pa.table({"state": batch.column("state"), "bytes": bytes_of_rows})
        for row in table.group_by("state").aggregate([("bytes", "sum")]).to_pylist():
            sizes[names[row["state"]]] += row["bytes_sum"]
    return sizes
