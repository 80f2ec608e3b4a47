"""State files put together by hand, for what no writer writes."""

from __future__ import annotations

import json
import zlib
from typing import Any

from emberstate.checkpoint.files.batches import schema_message
from emberstate.checkpoint.files.footer import END_OF_STREAM, HEAD, METADATA_KEY, build_footer
from emberstate.checkpoint.files.limits import FileLimits
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ValueStateDescriptor

STR: dict[str, Any] = {"kind": "str"}


def state(name: Any = "value", **changes: Any) -> dict[str, Any]:
    plain = {
        "name": name,
        "kind": "value",
        "codec": "msgspec",
        "type": STR,
        "user_key": None,
        "namespace": STR,
    }
    return {**plain, "ttl": None, **changes}


def metadata(**changes: Any) -> dict[str, Any]:
    return {
        "format": "emberstate state file",
        "version": 1,
        "requires": [],
        "library": "0.1.0",
        "kind": "delta",
        "merged": 1,
        "key_schema": ["string"],
        "max_parallelism": 4,
        "key_groups": [0, 3],
        "states": [state()],
        **changes,
    }


def file_of(
    meta: Any = None,
    batches: list[bytes] | None = None,
    *,
    entries: Any = None,
    blocks: list[tuple[int, int, int]] | None = None,
    raw_meta: bytes | None = None,
    raw_index: bytes | None = None,
) -> bytes:
    """A file put together by hand; whatever is not given is as it should be."""
    text = json.dumps(metadata() if meta is None else meta).encode() if raw_meta is None else raw_meta
    message = schema_message({METADATA_KEY: text})
    data = HEAD + message
    places, index = [], []
    for batch in batches or []:
        length = 8 + int.from_bytes(batch[4:8], "little")
        places.append((len(data), length, len(batch) - length))
        index.append([0, 3, 1, zlib.crc32(batch)])
        data += batch
    plain = {"batches": index if entries is None else entries}
    text = json.dumps(plain).encode() if raw_index is None else raw_index
    return data + END_OF_STREAM + build_footer(message, places if blocks is None else blocks, text)


def opened(data: bytes, **limits: int) -> StateFileReader:
    return StateFileReader.of_bytes(data, FileLimits(**limits), name="hostile")


def declared() -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
    backend.get_partitioned_state(ValueStateDescriptor("value", str))
    return backend
