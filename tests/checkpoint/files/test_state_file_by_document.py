"""A reader of state files written from docs/format.md alone: nothing of emberstate.checkpoint's reading is
used.

Only pyarrow, json, msgspec and the standard library, as somebody else would write it. If this needs a change,
so does the document.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from tests.checkpoint.files.state_file_world import content_of, do, make_backend
from tests.checkpoint.golden.make_state_files import FOLDER, plain_content

FORMAT = Path(__file__).parents[3] / "docs" / "format.md"

REPLACED, CLEARED, PUT, REMOVED, APPENDED = 1, 2, 3, 4, 5


class NotReadable(Exception):
    """By the document's rules, a reader refuses this file."""


def open_by_document(data: bytes) -> tuple[dict[str, Any], list[list[int]], pa.RecordBatchFileReader]:
    """Metadata, index and batches, with every check that the document asks for."""
    length, magic = struct.unpack("<i6s", data[-10:])
    footer = data[-10 - length : -10]
    table, ours, checksum, zero = struct.unpack_from("<I4sII", footer)
    if magic != b"ARROW1" or (table, ours, zero) != (32, b"EMB1", 0) or zlib.crc32(footer[16:]) != checksum:
        raise NotReadable("footer")
    reader = pa.ipc.open_file(pa.py_buffer(data))
    meta = json.loads(reader.schema.metadata[b"emberstate"])
    if meta["format"] != "emberstate state file" or meta["version"] > 1 or meta["requires"]:
        raise NotReadable("version")
    index = json.loads(reader.metadata[b"emberstate.index"])["batches"]
    if len(index) != reader.num_record_batches:
        raise NotReadable("index")
    return meta, index, reader


def check_batches(data: bytes, index: list[list[int]]) -> None:
    """The batches' checksums: messages follow one another up to the end of the stream."""
    (length,) = struct.unpack("<i", data[8 + 4 : 8 + 8])
    position = 8 + 8 + length  # behind the schema's message
    for _, _, _, checksum in index:
        marker, length = struct.unpack_from("<Ii", data, position)
        assert marker == 0xFFFFFFFF
        message = pa.ipc.read_message(pa.py_buffer(data[position:]))
        end = position + 8 + length + message.body.size
        assert zlib.crc32(data[position:end]) == checksum
        position = end
    assert data[position : position + 8] == b"\xff\xff\xff\xff\0\0\0\0"


def apply_by_document(data: bytes, content: dict[Any, Any]) -> None:
    """Apply a file to {(state's position in the order of names, key bytes, namespace bytes): (group,
    content)}."""
    meta, index, reader = open_by_document(data)
    check_batches(data, index)
    for number, (first, last, rows, _) in enumerate(index):
        batch = reader.get_batch(number)
        assert batch.num_rows == rows
        for row in batch.to_pylist():
            assert first <= row["key_group"] <= last
            state = meta["states"][row["state"]]
            entry = (state["kind"] == "timers", state["name"], row["key"], row["namespace"])
            value = None if row["value"] is None else msgspec.msgpack.decode(row["value"])
            if state["ttl"] is not None and row["op"] in (REPLACED, PUT, APPENDED):
                value = {"stamp": row["stamp"], "value": value}
            group = row["key_group"]
            old = content.get(entry, (group, None))[1]
            if row["op"] == REPLACED:
                content[entry] = (group, value)
            elif row["op"] == CLEARED:
                content.pop(entry, None)
            elif row["op"] == APPENDED:
                content[entry] = (group, [*(old or []), value])
            elif row["op"] == PUT:
                content[entry] = (group, {**(old or {}), row["user_key"]: value if state["type"] else True})
            elif row["op"] == REMOVED:
                left = {user_key: v for user_key, v in (old or {}).items() if user_key != row["user_key"]}
                content[entry] = (group, left)
                if not left:
                    del content[entry]
            else:
                raise NotReadable("op")


def plain(value: Any) -> Any:
    """Decoded MessagePack in the form of `golden.make_state_files.plain`."""
    if isinstance(value, dict):
        if set(value) == {"stamp", "value"}:
            return {"stamp": value["stamp"], "value": plain(value["value"])}
        if set(value) == {"name", "tags", "score"}:  # the one dataclass of these states
            return {name: plain(part) for name, part in value.items()}
        pairs = [[plain(msgspec.msgpack.decode(k)) if isinstance(k, bytes) else k, plain(v)] for k, v in value.items()]
        return {"pairs": sorted(pairs, key=json.dumps)}
    if isinstance(value, list):
        return [plain(part) for part in value]
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def content_by_document(*files: bytes) -> list[Any]:
    content: dict[Any, Any] = {}
    for data in files:
        apply_by_document(data, content)
    rows = []
    for (is_queue, name, key, namespace), (group, value) in content.items():
        label = f"queue {name}" if is_queue else name
        decode = msgspec.msgpack.decode
        rows.append([label, plain(decode(key)), plain(decode(namespace)), group, plain(value)])
    return sorted(rows, key=json.dumps)


def test_files_read_by_the_document_are_the_state() -> None:
    """Catches: a format that is not what the document says."""
    backend = make_backend()
    for i in range(40):
        do(backend, ("total", f"key-{i}", "", i))
        do(backend, ("profile", f"key-{i}", "w1", "n", ["t"], 1.5))
        do(backend, ("window", f"key-{i}", "", i, 0.25))
        do(backend, ("seen many", f"key-{i}", "", i % 14))
        do(backend, ("notes", f"key-{i}", "", i, "n", {"a": b"2"}))
        do(backend, ("visits", f"key-{i}", "", ["x", "y"]))
        do(backend, ("log", f"key-{i}", "", [i, i]))
        do(backend, ("ages", f"key-{i}", "", i, "old"))
        do(backend, ("last", f"key-{i}", "", b"l"))
        do(backend, ("mean", f"key-{i}", "", i))
        do(backend, ("timer", f"key-{i}", "w2", "event", i, "a"))
    with backend.snapshot() as snapshot:
        base = b"".join(BaseWriter(backend, snapshot, batch_rows=50))
        assert content_by_document(base) == plain_content(content_of(backend))
        for i in range(40):
            do(backend, ("unsee", f"key-{i}", "", "u3"))
            do(backend, ("visits", f"key-{i}", "", ["z"]))
            do(backend, ("poll", f"key-{i}", "", "event", 7))
            do(backend, ("clear", f"key-{i}", "", "last" if i % 2 else "seen"))
            do(backend, ("seen", f"key-{i}", "", "u1", None))
        delta = write_delta(backend, snapshot).data
    assert content_by_document(base, delta) == plain_content(content_of(backend))


@pytest.mark.reliability(24)
def test_golden_files_read_by_the_document() -> None:
    """Catches: a document that describes a later format than the files of version 1 have."""
    expected = json.loads((FOLDER / "v1-expected.json").read_text(encoding="utf-8"))
    files = [(FOLDER / f"v1-{name}.arrow").read_bytes() for name in ("base", "delta-1", "delta-2")]
    for number, name in enumerate(("base", "delta-1", "delta-2"), start=1):
        assert content_by_document(*files[:number]) == expected[name]


def shown(cell: Any) -> str:
    return cell.hex() if isinstance(cell, bytes) else "–" if cell is None else str(cell)


def test_the_worked_example_is_the_file() -> None:
    """Catches: an example in the document that no file looks like."""
    data = (FOLDER / "v1-example.arrow").read_bytes()
    _, _, reader = open_by_document(data)
    text = FORMAT.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:json|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    metadata, index, rows = blocks[-3:]
    assert json.loads(metadata) == json.loads(reader.schema.metadata[b"emberstate"])
    assert json.loads(index) == json.loads(reader.metadata[b"emberstate.index"])
    table = [[shown(cell) for cell in row.values()] for row in reader.read_all().to_pylist()]
    assert [line.split() for line in rows.splitlines()] == [list(reader.schema.names), *table]
