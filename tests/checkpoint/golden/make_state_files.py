"""Makes the golden state files of the present format version; run it once per version and never again.

    python -m tests.checkpoint.golden.make_state_files

The files are kept forever and must restore forever. `expected.json` says to what, as plain data.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json
from pathlib import Path
from typing import Any

from emberstate.checkpoint.files.meta import FORMAT_VERSION
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.merge import merge_deltas
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from emberstate.state.ttl.stamped import Stamped
from tests.checkpoint.files.state_file_world import content_of, do, make_backend

FOLDER = Path(__file__).parent

STEPS: list[list[Any]] = [
    [
        ("total", "ann", "", 7),
        ("total", "bob", "w1", -(2**63)),
        *[("total", f"key-{i}", "", 10**i) for i in range(12)],
        ("profile", "ann", "", "Ann", ["new"], 0.5),
        ("window", "bob", "", -3, 2.25),
        ("visits", "ann", "", ["home", "café"]),
        ("drafts", "bob", "", [[1, 2], []]),
        ("seen", "ann", "", "a", 1),
        ("seen", "ann", "", "b", None),
        ("seen many", "bob", "", 12),
        ("notes", "bob", "w2", 3, "k", {"x": b"\x00\xff"}),
        ("best", "ann", "", 300),
        ("mean", "ann", "", 5),
        ("mean", "ann", "", 8),
        ("last", "ann", "", b"raw"),
        ("time passes", "ann", "", 250),
        ("ages", "ann", "", -2, "two"),
        ("log", "bob", "", [1, 2]),
        ("timer", "ann", "w1", "event", 5, "quiet"),
        ("timer", "ann", "", "processing", -5, "wake"),
    ],
    [
        ("total", "ann", "", 8),
        ("clear", "bob", "w1", "total"),
        ("change profile", "ann", "", "vip"),
        ("visits", "ann", "", ["away"]),
        ("unsee", "ann", "", "a"),
        ("unsee", "bob", "", "u3"),
        ("clear", "bob", "", "drafts"),
        ("drafts", "bob", "", [[3]]),
        ("poll", "ann", "", "processing", 0),
    ],
    [
        ("seen", "ann", "", "a", 5),
        ("unsee", "ann", "", "b"),
        ("visits", "ann", "", ["back"]),
        ("timer", "bob", "", "event", 9, "late"),
        ("total", "cyd", "", 1),
    ],
]

KEY_TYPES = (
    "string",
    "bigint",
    "binary",
    "boolean",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "decimal(20,3)",
)
KEY = (
    "ключ",
    -5,
    b"\x00k",
    True,
    2.5,
    datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=datetime.UTC),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    decimal.Decimal("12345678901234.500"),
)


def keys_backend() -> HeapKeyedStateBackend:
    """A backend whose key has a column of every type."""
    backend = HeapKeyedStateBackend(KeySchema(KEY_TYPES), max_parallelism=128)
    backend.get_partitioned_state(ValueStateDescriptor("moment", datetime.datetime))
    return backend


EXAMPLE_SEEN = MapStateDescriptor("seen", str, int, ttl=TtlConfig(datetime.timedelta(hours=1)))
EXAMPLE_TOTAL = ValueStateDescriptor("total", float)


def example() -> bytes:
    """The delta that docs/format.md takes apart."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    backend.ttl_clock.processing_time = 1_700_000_000_000_000
    seen, total = backend.get_partitioned_state(EXAMPLE_SEEN), backend.get_partitioned_state(EXAMPLE_TOTAL)
    backend.set_current_key("ann")
    seen.put_all({"cafe": 1, "shop": 2})
    total.update(9.5)
    with backend.snapshot() as snapshot:
        seen.remove("shop")
        seen["cafe"] += 1
        total.clear()
        backend.set_current_key("bob")
        total.update(20.0)
        backend.get_timer_queue("event").register(1_700_000_300_000_000, "quiet")
        return write_delta(backend, snapshot).data


def plain(value: Any) -> Any:
    """Any content as JSON can hold it, without losing a difference."""
    if isinstance(value, Stamped):
        return {"stamp": value.stamp, "value": plain(value.value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {"pairs": sorted(([plain(k), plain(v)] for k, v in value.items()), key=json.dumps)}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, (datetime.date, decimal.Decimal)):
        return {type(value).__name__: str(value)}
    return value


def plain_content(content: dict[Any, Any]) -> list[Any]:
    """What `content_of` gives, as plain data in one order."""
    rows = [
        [state, plain(key), plain(namespace), group, plain(c)]
        for (state, key, namespace), (group, c) in content.items()
    ]
    return sorted(rows, key=json.dumps)


def write(name: str, data: bytes) -> None:
    """Write a golden file; one that is there already stays."""
    file = FOLDER / f"v{FORMAT_VERSION}-{name}.arrow"
    with file.open("xb") as out:
        out.write(data)


def main() -> None:
    """Make all golden files."""
    expected: dict[str, Any] = {}
    backend = make_backend(now=1_700_000_000_000_000)
    for step in STEPS[0]:
        do(backend, step)
    with backend.snapshot() as snapshot:
        write("base", b"".join(BaseWriter(backend, snapshot)))
    expected["base"] = plain_content(content_of(backend))
    deltas = []
    for number, steps in enumerate(STEPS[1:], start=1):
        with backend.snapshot() as snapshot:
            for step in steps:
                do(backend, step)
            deltas.append(write_delta(backend, snapshot).data)
        write(f"delta-{number}", deltas[-1])
        expected[f"delta-{number}"] = plain_content(content_of(backend))
    write("merged", merge_deltas([StateFileReader.of_bytes(delta) for delta in deltas]).data)
    write("example", example())
    keyed = keys_backend()
    keyed.set_current_key(KEY)
    keyed.get_partitioned_state(ValueStateDescriptor("moment", datetime.datetime)).update(KEY[6])
    with keyed.snapshot() as snapshot:
        write("keys", b"".join(BaseWriter(keyed, snapshot)))
    expected["keys"] = [plain(KEY), plain(KEY[6]), keyed.context.grouper(KEY)]
    text = json.dumps(expected, indent=1, ensure_ascii=True, sort_keys=True)
    (FOLDER / f"v{FORMAT_VERSION}-expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
