"""Draws small state maps as text: tables, rehash index, chains, versions, and what snapshots keep.

A picture is read from the live structure and depends on nothing else, so doctests and pages can show one. An entry is
drawn as `key namespace=state vE/S`, where E is its entry version and S its state version; a bucket's head comes first.
An entry whose version is below `required` is shared with a snapshot. A former table is one that the map has outgrown
and a snapshot still sees.

Thread safety: the map's owner thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from emberstate.errors import StateDeclarationError
from emberstate.heap.map.before_images import MapImage
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.entry import StateMapEntry
from emberstate.heap.map.interface import StateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.page_table import PageTable
from emberstate.heap.map.snapshot_reader import map_images_since

#: Most buckets of a table that is drawn; such a table has one page.
MAX_BUCKETS = 64

#: Most entries of a `NestedStateMap` that is drawn.
MAX_ENTRIES = 64

#: Most characters of a key, namespace or state.
MAX_TEXT = 24


def draw_map(map: CopyOnWriteStateMap) -> str:
    """Return a picture of `map`; raises `StateDeclarationError` if a table has more than `MAX_BUCKETS` buckets."""
    images = map_images_since(map, 0)
    names = {map.primary: "primary"}
    if map.rehash is not None:
        names[map.rehash] = "rehash"
    for image in images:
        for table in (image.primary, image.rehash):
            if table is not None:
                names.setdefault(table, "former")
    _check_size("buckets in a table", max(table.capacity for table in names), MAX_BUCKETS)
    picture: str = map.registry.undisturbed(_picture, map, names, images)  # a key's repr may be a user's code
    return picture


def draw_nested_map(map: NestedStateMap) -> str:
    """Return a picture of `map`; raises `StateDeclarationError` if it has more than `MAX_ENTRIES` entries."""
    _check_size("entries", len(map), MAX_ENTRIES)
    picture: str = map.registry.undisturbed(_nested_picture, map)
    return picture


def _check_size(what: str, found: int, most: int) -> None:
    if found > most:
        raise StateDeclarationError(
            f"draw() failed: expected at most {most} {what}, got {found}. Draw a smaller map, or read statistics().",
            option="draw",
            expected=most,
            found=found,
        )


def _picture(map: CopyOnWriteStateMap, names: dict[PageTable, str], images: list[MapImage]) -> str:
    lines = [_summary(map)]
    for table, name in names.items():
        lines.append(f"{name} table, {table.capacity} buckets{_progress(map, table)}")
        lines += [f"{bucket:>4} | {_content(map, table, bucket)}" for bucket in range(table.capacity)]
    for image in images:
        lines.append(f"snapshot {image.version}: entries {image.size}, heads kept {image.image_count()}")
        lines += [f"{bucket:>4} | {_chain(head)} ({name})" for name, bucket, head in _kept(image, names)]
    return "\n".join(lines)


def _nested_picture(map: NestedStateMap) -> str:
    lines = [_summary(map)]
    for namespace, keys in map.namespaces.items():
        pairs = ", ".join(f"{_text(key)}={_text(state)}" for key, state in keys.items())
        lines.append(f"namespace {_text(namespace)} | {pairs}")
    return "\n".join(lines)


def _summary(map: StateMap) -> str:
    registry = map.registry
    live = [snapshot.version for snapshot in registry.live if not snapshot.released]
    return f"entries {len(map)}, version {registry.version}, required {registry.required}, live snapshots {live}"


def _progress(map: CopyOnWriteStateMap, table: PageTable) -> str:
    if table is not map.primary:
        return ""
    return f", threshold {map.threshold}" if map.rehash is None else f", rehash index {map.rehash_index}"


def _content(map: CopyOnWriteStateMap, table: PageTable, bucket: int) -> str:
    if table is map.primary and bucket < map.rehash_index:
        return "moved"
    if table is map.rehash and bucket % map.primary.capacity >= map.rehash_index:
        return "not yet"
    page = table.pages[0]
    return _chain(None if page is None else page[bucket])


def _kept(image: MapImage, names: dict[PageTable, str]) -> Iterator[tuple[str, int, StateMapEntry | None]]:
    for side in image.sides:
        for shard in side.shards:
            for bucket, head in sorted((shard or {}).items()):
                yield names.get(side.table, "former"), bucket, head


def _chain(head: StateMapEntry | None) -> str:
    drawn = []
    entry = head
    while entry is not None:
        pair = f"{_text(entry.key)} {_text(entry.namespace)}={_text(entry.state)}"
        drawn.append(f"{pair} v{entry.entry_version}/{entry.state_version}")
        entry = entry.next
    return " -> ".join(drawn) or "-"


def _text(value: Any) -> str:
    text = f"map of {len(value)}" if isinstance(value, CopyOnWriteStateMap) else repr(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
