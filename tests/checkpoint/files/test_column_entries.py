"""Tables that give their entries as columns write the files of tables that do not, to the byte."""

from __future__ import annotations

import dataclasses
import itertools
import random
from array import array
from collections.abc import Iterable
from typing import Any

import pytest

from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.errors import StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.snapshots import SnapshotPoint
from emberstate.heap.states.state_table import CopyOnWriteStateTable
from emberstate.keygroups import KeySchema
from emberstate.state.cells.entry_columns import EntryColumns
from emberstate.state.cells.records import FieldValues
from emberstate.state.changes import Op
from emberstate.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from emberstate.state.key_bytes import key_bytes
from emberstate.state.ttl.config import TtlConfig, TtlVisibility
from emberstate.state.ttl.stamped import Stamped
from tests.raising import raising

SCHEMA = KeySchema(("string", "bigint"))


@dataclasses.dataclass(frozen=True)
class Total:
    """What is kept in columns."""

    n: int
    best: float | None
    shop: str | None


class Columns(CopyOnWriteStateTable):
    """A table that gives the entries of state "total" as columns, too."""

    def entry_columns(self, key_group: int, point: SnapshotPoint) -> Iterable[EntryColumns] | None:
        """In parts of three."""
        if self.name != "total":
            return None
        entries = [(key_group, *entry) for entry in self.entries(key_group, point)]
        return [columns_of(entries[start : start + 3]) for start in range(0, len(entries), 3)]

    def changed_columns(self, snapshot: SnapshotPoint) -> EntryColumns | None:
        """All of them."""
        if self.name != "total":
            return None
        return columns_of(
            [
                (group, key, namespace, steps[0][1] if steps[0][0] is Op.REPLACED else None)
                for group, (key, namespace, steps) in self.changes(snapshot)
            ]
        )


def columns_of(entries: list[tuple[int, Any, Any, Any]]) -> EntryColumns:
    """Entries (key group, key, namespace, content or None if it was removed) as columns."""
    random.Random(len(entries)).shuffle(entries)
    keys = [key_bytes(SCHEMA).encode(key) for _, key, _, _ in entries]
    namespaces = sorted({namespace for _, _, namespace, _ in entries})
    contents = [content for _, _, _, content in entries]
    stamps = None
    if any(isinstance(content, Stamped) for content in contents):
        stamps = array("q", [-1 if content is None else content.stamp for content in contents])
        contents = [None if content is None else content.value for content in contents]
    there = [Total(0, None, None) if content is None else content for content in contents]
    return EntryColumns(
        array("i", [group for group, _, _, _ in entries]),
        b"".join(keys),
        array("q", [0, *itertools.accumulate(map(len, keys))]),
        namespaces,
        array("i", [namespaces.index(namespace) for _, _, namespace, _ in entries]),
        bytes(content is not None for content in contents),
        [
            FieldValues(array("q", [total.n for total in there])),
            FieldValues(array("d", [total.best or 0.0 for total in there]), bytes(t.best is None for t in there)),
            FieldValues([total.shop for total in there]),
        ],
        stamps,
    )


class World:
    """A backend with a state of records beside two others."""

    def __init__(self, ttl: TtlConfig | None, table_type: type[CopyOnWriteStateTable]) -> None:
        self.backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=8, table_type=table_type)
        self.backend.ttl_clock.processing_time = 0
        self.states = [
            self.backend.get_partitioned_state(descriptor)
            for descriptor in (
                ValueStateDescriptor("count", int),
                ListStateDescriptor("log", str),
                ValueStateDescriptor("total", Total, ttl=ttl),
            )
        ]
        self.windowed = self.backend.get_partitioned_state(ValueStateDescriptor("total", Total, ttl=ttl), "w")

    def change(self, rng: random.Random) -> None:
        """Change some entries."""
        count, log, _ = self.states
        for _ in range(60):
            self.backend.set_current_key((f"user-{rng.randrange(20)}", rng.randrange(3)))
            number = rng.randrange(1000)
            total = rng.choice([self.states[2], self.windowed])
            if number < 300:
                total.clear()
            else:
                shop = rng.choice([None, "é", "a shop"])
                total.update(Total(rng.randrange(-(2**63), 2**63), rng.choice([None, 0.5]), shop))
            if number % 3 == 0:
                count.update(number)
                log.add(str(number))

    def base(self) -> bytes:
        """A base of everything."""
        with self.backend.snapshot() as snapshot:
            return b"".join(BaseWriter(self.backend, snapshot, batch_rows=16))


TTLS = [
    None,
    TtlConfig("10 seconds"),
    TtlConfig("10 seconds", visibility=TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP),
]


@pytest.mark.parametrize("ttl", TTLS, ids=["for ever", "expires", "shown until cleaned up"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_files(ttl: TtlConfig | None, seed: int) -> None:
    """Catches: a column table whose deltas or bases differ from those of the same state in objects; removed or expired
    entries that come back."""
    worlds = [World(ttl, CopyOnWriteStateTable), World(ttl, Columns)]
    for step in range(4):
        files = []
        for world in worlds:
            world.backend.ttl_clock.processing_time = step * 4_000_000
            with world.backend.snapshot() as snapshot:
                world.change(random.Random(seed * 10 + step))
                files.append((write_delta(world.backend, snapshot).data, world.base()))
        assert files[0][0] == files[1][0]
        assert files[0][1] == files[1][1]


def test_a_wrong_value_in_a_column() -> None:
    """Catches: a rejected value whose state and key nobody is told."""

    class Wrong(Columns):
        def changed_columns(self, snapshot: SnapshotPoint) -> EntryColumns | None:
            found = super().changed_columns(snapshot)
            if found is not None:
                found.fields[2].data[found.fields[0].data.index(7)] = 7
            return found

    world = World(None, Wrong)
    with world.backend.snapshot() as snapshot:
        for number in (6, 7, 8):
            world.backend.set_current_key(("ann", number))
            world.states[2].update(Total(number, None, None))
        with raising(StateTypeError, state="total", key=("ann", 7)):
            write_delta(world.backend, snapshot)
