"""Rejects duplicates in the data of a savepoint: a value, list or user key given twice, of which one would be lost.

Thread safety: pure, but for reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.errors import StateTypeError
from emberstate.keygroups import KeySchema
from emberstate.state.key_bytes import key_bytes

#: Rows to compare at once.
COMPARED_ROWS: Final = 4_000_000

_IDENTITY: Final = pa.schema([("state", pa.uint16()), ("key", pa.binary()), ("user_key", pa.binary())])


def given_twice(state: str, key: Any, *user_key: Any) -> StateTypeError:
    """Return the error for a state, or a user key of it, that is given twice."""
    what = f", user key {user_key[0]!r:.200}," if user_key else ""
    return StateTypeError(
        f"state {state!r} of key {key!r:.200}{what} is given more than once: a savepoint holds one. Aggregate the rows "
        f"by key first",
        state=state,
        key=key,
    )


def check_once(readers: Sequence[StateFileReader], schema: KeySchema) -> None:
    """Raise if an entry is in more than one of the files. Compares as many key groups at once as fit into memory."""
    rows = sum(entry.rows for reader in readers for entry in reader.entries)
    passes = max(1, -(-rows // COMPARED_ROWS))
    for number in range(passes):
        parts = [_identities(reader, number, passes) for reader in readers]
        table = pa.Table.from_batches([batch for part in parts for batch in part], _IDENTITY)
        counts = table.group_by(["state", "key", "user_key"]).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts["count_all"], 1))
        if len(twice):
            first = twice.slice(0, 1).to_pylist()[0]
            stored = readers[0].meta.states[first["state"]]
            key = key_bytes(schema).decode(first["key"])
            data = first["user_key"]
            raise given_twice(stored.name, key, *([] if data is None else [msgspec.msgpack.decode(data)]))


def _identities(reader: StateFileReader, number: int, passes: int) -> Iterator[pa.RecordBatch]:
    """Yield (state, key, user key) of each value, list and user key, for every `passes`-th key group."""
    seen: list[pa.RecordBatch] = []
    for _, batch in reader.batches(reader.meta.key_groups):
        groups = batch.column("key_group").cast(pa.int32())
        ours = pc.equal(pc.subtract(groups, pc.multiply(pc.divide(groups, passes), passes)), number)
        seen.append(batch.filter(ours).select(_IDENTITY.names))
    if not seen:
        return
    # A list has one row per element, but counts once.
    unique = pa.Table.from_batches(seen).group_by(_IDENTITY.names).aggregate([])
    yield from unique.select(_IDENTITY.names).cast(_IDENTITY).to_batches()
