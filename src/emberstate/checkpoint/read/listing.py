"""The states of a checkpoint with their types: `list_states` as a table, `describe_state` for people.

Thread safety: as the reader.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pyarrow as pa

from emberstate.checkpoint.files.meta import StoredState, StoredTtl
from emberstate.checkpoint.read.reader import CheckpointReader

#: The columns. Types are named as in messages: `list[int]`, or the class's name.
LISTING_SCHEMA: Final = pa.schema(
    [
        ("operator", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("key_schema", pa.list_(pa.string())),
        ("max_parallelism", pa.int64()),
        ("namespace_type", pa.string()),
        ("user_key_type", pa.string()),
        ("value_type", pa.string()),
        ("codec", pa.string()),
        ("ttl", pa.duration("us")),
        ("ttl_time", pa.string()),
    ]
)


def list_states(reader: CheckpointReader) -> pa.Table:
    """Return the states and timer queues of all operators, a row each.

    >>> from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, OperatorSpec
    >>> from emberstate.storage.memory import MemoryStorage
    >>> from emberstate.keygroups import KeySchema
    >>> storage = MemoryStorage()
    >>> counts = OperatorSpec(name="counts", key_schema=KeySchema.from_python(str))
    >>> coordinator = CheckpointCoordinator.open(storage, "clicks", [counts])
    >>> with CheckpointReader.open(storage) as reader:
    ...     list_states(reader).num_rows
    0
    """
    rows: list[dict[str, Any]] = []
    for operator in reader.manifest.operators:
        for state in reader.states(operator.name):
            rows.append(
                {
                    "operator": operator.name,
                    "state": state.address,
                    "kind": state.kind,
                    "key_schema": list(operator.key_schema),
                    "max_parallelism": operator.max_parallelism,
                    "namespace_type": state.namespace.label,
                    "user_key_type": None if state.user_key is None else state.user_key.label,
                    "value_type": None if state.type is None else state.type.label,
                    "codec": state.codec,
                    "ttl": None if state.ttl is None else min(state.ttl.micros, 2**63 - 1),
                    "ttl_time": None if state.ttl is None else state.ttl.time,
                }
            )
    return pa.Table.from_pylist(rows, LISTING_SCHEMA)


def describe_state(operator: str, stored: StoredState) -> dict[str, Any]:
    """Return a state with its types, as people read them."""
    return {
        "operator": operator,
        "state": stored.address,
        "kind": stored.kind,
        "type": None if stored.type is None else stored.type.label,
        "user_key": None if stored.user_key is None or stored.kind == "timers" else stored.user_key.label,
        "namespace": stored.namespace.label,
        "ttl": None if stored.ttl is None else _ttl_text(stored.ttl),
        "codec": stored.codec,
    }


def _ttl_text(ttl: StoredTtl) -> str:
    try:
        duration = str(timedelta(microseconds=ttl.micros))
    except OverflowError:
        duration = f"{ttl.micros} µs"
    return f"{duration} of {ttl.time} time"
