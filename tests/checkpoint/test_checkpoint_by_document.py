"""A reader of whole checkpoints written from docs/format.md alone: nothing of emberstate's reading is used.

Only pyarrow, json, hashlib, msgspec and the standard library, as somebody else would write it. If this needs a
change, so does the document.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.checkpoint.counting import file_job
from tests.checkpoint.files.test_state_file_by_document import (
    APPENDED,
    CLEARED,
    FORMAT,
    PUT,
    REMOVED,
    REPLACED,
    NotReadable,
    check_batches,
    open_by_document,
    plain,
)
from tests.checkpoint.golden.make_state_files import FOLDER


def checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def small_file(what: str, data: bytes) -> dict[str, Any]:
    """The JSON of a small file."""
    line, _, text = data.partition(b"\n")
    kind, version = line.decode("ascii").split(" ")[1:3]
    if not line.startswith(b"emberstate ") or kind != what or int(version) > 1:
        raise NotReadable("head")
    if line != f"emberstate {what} 1 {checksum(text)} {len(text)}".encode():
        raise NotReadable("checksum")
    found: dict[str, Any] = json.loads(text)
    return found


def numbers(root: Path, folder: str, width: int) -> list[int]:
    names = [path.name for path in (root / folder).iterdir()]
    return sorted(int(name) for name in names if re.fullmatch(rf"[0-9]{{{width},}}", name))


def newest(root: Path) -> dict[str, Any]:
    """The newest checkpoint's manifest, held to everything that the document says about manifests."""
    number = max(n for n in numbers(root, "checkpoints", 12) if (root / f"checkpoints/{n:012}/manifest").exists())
    manifest = small_file("manifest", (root / f"checkpoints/{number:012}/manifest").read_bytes())
    if manifest["number"] != number or manifest.get("requires"):
        raise NotReadable("manifest")
    for operator in manifest.get("operators", []):
        expected = 0
        for slot in operator["slots"]:
            first, last = slot["groups"]
            if first != expected or last < first:
                raise NotReadable("slots")
            expected = last + 1
            check_chain(slot)
        if expected != operator["max_parallelism"]:
            raise NotReadable("slots")
    return manifest


def check_chain(slot: dict[str, Any]) -> None:
    seen: dict[int, set[Any]] = {}
    for file in slot.get("files", []):
        for group in range(file["groups"][0], file["groups"][1] + 1):
            place = (file["place"]["path"], file["place"].get("offset", 0))
            found = seen.setdefault(group, set())
            if not slot["groups"][0] <= group <= slot["groups"][1] or {file["id"], place} & found:
                raise NotReadable("chain")
            if found and file["kind"] == "base":
                raise NotReadable("base")
            found |= {file["id"], place}


def read(root: Path, place: dict[str, Any]) -> bytes:
    """The bytes at a place."""
    parts = place["path"].split("/")
    if parts[0] not in ("state", "output", "checkpoints", "savepoints") or {"", ".", ".."} & set(parts):
        raise NotReadable("path")
    with (root / place["path"]).open("rb") as file:
        file.seek(place.get("offset", 0))
        data = bytes(file.read(place["size"]))
    if checksum(data) != place["checksum"]:
        raise NotReadable("checksum")
    return data


def rows(root: Path, operator: dict[str, Any], file: dict[str, Any]) -> Iterator[tuple[str, bool, Any, dict[str, Any]]]:
    """(state's name now, is it a queue, its metadata, row) of a file as a chain names it."""
    data = read(root, file["place"])
    (length,) = struct.unpack("<i", data[-10:-6])
    if checksum(data[-10 - length :]) != file["seal"]:
        raise NotReadable("seal")
    meta, index, reader = open_by_document(data)
    check_batches(data, index)
    for field, expected in (("kind", file), ("key_schema", operator), ("max_parallelism", operator)):
        if meta[field] != expected[field]:
            raise NotReadable(field)
    first, last = file["groups"]
    if not meta["key_groups"][0] <= first <= last <= meta["key_groups"][1]:
        raise NotReadable("key groups")
    decided = file.get("evolution", {})
    for number in range(len(index)):
        for row in reader.get_batch(number).to_pylist():
            state = meta["states"][row["state"]]
            queue = state["kind"] == "timers"
            stored = f"timers/{state['name']}" if queue else state["name"]
            if first <= row["key_group"] <= last and stored not in decided.get("drop_states", []):
                row["renames"] = decided.get("rename_fields", {}).get(stored, {})
                if row["stamp"] is None and row["op"] in (REPLACED, PUT, APPENDED):
                    row["stamp"] = decided.get("stamps", {}).get(stored)
                yield decided.get("rename_states", {}).get(stored, stored).removeprefix("timers/"), queue, state, row


def renamed(value: Any, renames: dict[str, str]) -> Any:
    """A record with its fields as they are called now; only top-level fields are renamed in these tests."""
    if not renames or not isinstance(value, dict):
        return value
    return {renames.get(name, name): part for name, part in value.items() if renames.get(name, name)}


def content(root: Path, operator: dict[str, Any]) -> list[Any]:
    """[state, key, namespace, key group, content] of everything that an operator holds."""
    found: dict[Any, Any] = {}
    for slot in operator["slots"]:
        for file in slot.get("files", []):
            for name, queue, state, row in rows(root, operator, file):
                entry = (f"queue {name}" if queue else name, row["key"], row["namespace"])
                group, op = row["key_group"], row["op"]
                value = None if row["value"] is None else msgspec.msgpack.decode(row["value"])
                value = renamed(value, row["renames"])
                if row["stamp"] is not None:
                    value = {"stamp": row["stamp"], "value": value}
                old = found.get(entry, (group, None))[1]
                if op == REPLACED:
                    found[entry] = (group, value)
                elif op == CLEARED:
                    found.pop(entry, None)
                elif op == APPENDED:
                    found[entry] = (group, [*(old or []), value])
                elif op == PUT:
                    found[entry] = (group, {**(old or {}), row["user_key"]: value if state["type"] else True})
                elif op == REMOVED:
                    left = {key: part for key, part in (old or {}).items() if key != row["user_key"]}
                    found.pop(entry, None)
                    if left:  # what had expired may have been left out of a base, so this may be the last
                        found[entry] = (group, left)
                else:
                    raise NotReadable("op")
    decode = msgspec.msgpack.decode
    plains = [
        [name, plain(decode(key)), plain(decode(namespace)), group, plain(value)]
        for (name, key, namespace), (group, value) in found.items()
    ]
    return sorted(plains, key=json.dumps)


def by_name(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    (operator,) = (found for found in manifest["operators"] if found["name"] == name)
    return dict(operator)


@pytest.mark.reliability(24)
def test_the_golden_checkpoint_read_by_the_document() -> None:
    """Catches: a document by which nobody could read the checkpoints of version 1."""
    root = FOLDER / "v1-checkpoint"
    expected = json.loads((FOLDER / "v1-checkpoint-expected.json").read_text(encoding="utf-8"))
    manifest = newest(root)
    assert manifest["number"] == expected["number"] and manifest["kind"] == "commit"
    assert {name: manifest["batch"][name] for name in expected["batch"]} == expected["batch"]
    assert content(root, by_name(manifest, "world")) == expected["world"]
    found = content(root, by_name(manifest, "evolving"))
    records = []
    for name, key, _, _, value in found:
        # What was added has its default.
        records.append([name, key, {"limit": 0, **dict(value["pairs"])} if isinstance(value, dict) else value])
    assert sorted(records, key=json.dumps) == sorted(expected["evolving"], key=json.dumps)
    assert [read(root, output["place"]).decode() for output in manifest["outputs"]] == expected["outputs"]


@pytest.mark.reliability(24)
def test_claims_and_intents_read_by_the_document() -> None:
    """Catches: the smaller files, which the document describes as well."""
    root = FOLDER / "v1-checkpoint"
    manifest = newest(root)
    (claim,) = numbers(root, "claims", 6)
    assert small_file("claim", (root / f"claims/{claim:06}").read_bytes()) == manifest["writer"]
    assert manifest["writer"]["incarnation"] == claim
    parent = small_file("manifest", (root / f"checkpoints/{manifest['parent']['number']:012}/manifest").read_bytes())
    assert (parent["id"], parent["kind"]) == (manifest["parent"]["id"], "opening")
    name = f"{manifest['batch']['id']:020}-{parent['origin'] or 'start'}"
    intent = small_file("intent", (root / "intents" / name).read_bytes())
    batch = {field: value for field, value in manifest["batch"].items() if field != "max_event_time"}
    assert intent["batch"] == batch and intent["origin"] == parent["origin"]
    assert (intent["incarnation"], intent["token"]) == (claim, manifest["writer"]["token"])


def test_what_the_library_writes_now_is_what_the_document_says(tmp_path: Path) -> None:
    """Catches: a format that moves on while the document stays."""
    for parallelism, batches in ((1, 13), (3, 2), (2, 2)):
        job = file_job(tmp_path, parallelism)
        job.slot(parallelism - 1)._inline_bytes = 0
        job.run(batches)
        found = content(tmp_path, by_name(newest(tmp_path), "counts"))
        assert as_job_content(found) == job.content()
        job.close()


def as_job_content(found: list[Any]) -> dict[str, Any]:
    """The same in the form of `counting_job`."""
    states: dict[str, dict[str, Any]] = {name: {} for name in ("count", "log", "seen", "queue event")}
    for name, key, _, _, value in found:
        states[name][key] = value
    return {
        key: (
            states["count"][key],
            states["log"][key],
            dict(states["seen"][key]["pairs"]),
            sorted(timer[0] for timer, _ in states["queue event"][key]["pairs"]),
        )
        for key in states["count"]
    }


def blocks(text: str) -> list[str]:
    part = text[text.index("## A checkpoint, worked through") : text.index("## The state file")]
    return re.findall(r"^```(?:json|text)\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


def test_the_worked_example_is_the_checkpoint() -> None:
    """Catches: an example in the document that no checkpoint looks like."""
    root = FOLDER / "v1-example"
    listing, head, body = blocks(FORMAT.read_text(encoding="utf-8"))
    files = sorted(path for path in root.rglob("*") if path.is_file())
    assert [line.split() for line in listing.splitlines()] == [
        [str(path.stat().st_size), path.relative_to(root).as_posix()] for path in files
    ]
    first, _, text = (root / "checkpoints/000000000002/manifest").read_bytes().partition(b"\n")
    assert head.strip().encode() == first
    assert json.loads(body) == json.loads(text) == newest(root)
    found = content(root, by_name(newest(root), "repeated-card"))
    assert [[name, key, group, value] for name, key, _, group, value in found] == [
        ["seen", "ann", 75, {"pairs": [["cafe", {"stamp": 1_700_000_000_000_000, "value": 1}]]}],
        ["seen", "bob", 11, {"pairs": [["shop", {"stamp": 1_700_000_000_000_000, "value": 1}]]}],
        ["total", "ann", 75, 9.5],
        ["total", "bob", 11, 20.0],
    ]


def test_every_field_of_a_manifest_is_in_the_document() -> None:
    """Catches: a field that is added and not described."""
    from emberstate.checkpoint.manifest import intent
    from emberstate.checkpoint.manifest import model as structures

    text = FORMAT.read_text(encoding="utf-8")
    part = text[text.index("## Claims") : text.index("## A checkpoint, worked through")]
    documented = set(re.findall(r"`([a-z_]+)`", part))
    kinds: list[Any] = [kind for kind in vars(structures).values() if isinstance(kind, type)]
    fields = {name for kind in (*kinds, intent.Intent) for name in getattr(kind, "__struct_fields__", ())}
    assert len(fields) > 30 and fields <= documented, fields - documented
