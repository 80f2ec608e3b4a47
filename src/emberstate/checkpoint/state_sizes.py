"""How many bytes each state of a file has, for the limit of checkpoints that are kept in memory.

Thread safety: pure functions.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.state_file_reader import StateFileReader
from emberstate.errors import StateTooLargeError

_CELLS = ("key", "namespace", "user_key", "value")


def state_sizes(reader: StateFileReader) -> dict[str, int]:
    """The encoded bytes of every state's rows: keys, namespaces, user keys and values, before compression."""
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


def check_state_sizes(reader: StateFileReader, limit: int, operator: str) -> None:
    """Raise `StateTooLargeError` for the largest state, if it exceeds the limit."""
    sizes = state_sizes(reader)
    if not sizes:
        return
    name = max(sizes, key=lambda state: sizes[state])
    if sizes[name] > limit:
        raise StateTooLargeError(
            f"state {name!r} of operator {operator!r} has {sizes[name]:,} bytes in one slot; a MemoryStateBackend "
            f"keeps checkpoints in the coordinator's memory and takes at most {limit:,} bytes per state. Use "
            f"FsStateBackend(uri), or MemoryStateBackend(max_state_size=…) if the memory is there."
        )
