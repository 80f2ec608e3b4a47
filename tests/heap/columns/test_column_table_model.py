"""A column table against dicts: batches and single entries, snapshots, roll-backs, releases here and elsewhere."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.heap.columns import snapshot_chunks
from emberstate.heap.columns.column_table import ColumnTable
from emberstate.heap.columns.layout import ColumnLayout
from emberstate.heap.map.snapshots import SnapshotPoint, SnapshotRegistry
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.changes import ABSENT, apply_ops
from emberstate.state.key_bytes import key_bytes
from emberstate.state.key_context import KeyContext
from emberstate.state.ttl.stamped import Stamped
from tests.effort import examples
from tests.heap.conftest import COMPILED


@dataclasses.dataclass(frozen=True)
class Total:
    """A record with a column of each kind."""

    n: int
    best: float | None = None
    flag: bool | None = None
    word: str | None = None


SCHEMA = KeySchema.from_python(str)
KEYS = [f"k{number}" for number in range(12)]
NAMESPACES = ["", "w1", "w2"]

Pair = tuple[str, str]
Content = dict[Pair, Total]

records = st.builds(
    Total,
    n=st.integers(-(2**63), 2**63 - 1),
    best=st.sampled_from([None, 0.0, -0.0, 2.5, float("inf")]),
    flag=st.sampled_from([None, True, False]),
    word=st.sampled_from([None, "", "x"]),
)
pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from(NAMESPACES))


def make_table(registry: SnapshotRegistry | None = None, stamped: bool = False) -> ColumnTable:
    """A table of its own."""
    context = KeyContext(SCHEMA, 4, KeyGroupRange(0, 3))
    registry = SnapshotRegistry() if registry is None else registry
    return ColumnTable("total", ColumnLayout(Total), context, registry, stamped=stamped)


def batch(table: ColumnTable, places: list[Pair]) -> tuple[Any, ...]:
    """Keys, key groups and namespaces of places as `rows_of` takes them."""
    keys = [key_bytes(SCHEMA).encode(key) for key, _ in places]
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    groups = np.array([table.context.grouper(key) for key, _ in places], np.int32)
    return b"".join(keys), offsets, groups, table.namespace_numbers([namespace for _, namespace in places])


def content_at(table: ColumnTable, point: SnapshotPoint) -> Content:
    """What a snapshot shows."""
    found = {}
    for group in range(4):
        for key, namespace, record in table.entries(group, point):
            assert table.context.grouper(key) == group
            assert (key, namespace) not in found
            found[key, namespace] = record
    return found


@dataclasses.dataclass
class Taken:
    """A live snapshot and what it must show."""

    point: SnapshotPoint
    content: Content


class ColumnTableMachine(RuleBasedStateMachine):
    """The table and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = make_table()
        self.model: Content = {}
        self.taken: list[Taken] = []

    @rule(items=st.lists(st.tuples(pairs, records), max_size=15))
    def write(self, items: list[tuple[Pair, Total]]) -> None:
        """Write a batch, all rows at once."""
        content = dict(items)
        places = list(content)
        rows = self.table.rows_of(*batch(self.table, places))
        old = self.table.layout.records_of(self.table.gather(rows))
        assert old == [self.model.get(place, Total(0)) for place in places]
        self.table.write(rows, self.table.layout.columns_of(list(content.values())))
        self.model.update(content)

    @rule(places=st.lists(pairs, max_size=8, unique=True))
    def forget_rows(self, places: list[Pair]) -> None:
        """Ask for rows and write nothing, as a batch that fails does."""
        self.table.rows_of(*batch(self.table, places))

    @rule(places=st.lists(pairs, max_size=10, unique=True))
    def remove(self, places: list[Pair]) -> None:
        """Remove entries, all rows at once."""
        data, offsets, _, numbers = batch(self.table, places)
        rows = self.table.find_rows(data, offsets, numbers)
        assert [row >= 0 for row in rows] == [place in self.model for place in places]
        assert self.table.remove_rows(rows[rows >= 0]) == sum(place in self.model for place in places)
        for place in places:
            self.model.pop(place, None)

    @rule(namespaces=st.lists(st.sampled_from(NAMESPACES), max_size=2))
    def remove_namespaces(self, namespaces: list[str]) -> None:
        """Close windows."""
        rows = self.table.rows_in(namespaces)
        gone = {place for place in self.model if place[1] in namespaces}
        assert self.table.remove_rows(rows) == len(gone)
        for place in gone:
            del self.model[place]

    @rule(place=pairs, record=records)
    def put(self, place: Pair, record: Total) -> None:
        """One entry, as a handle sets it."""
        self.table.context.set_current_key(place[0])
        assert self.table.put_and_get_old(place[1], record) == self.model.get(place)
        self.model[place] = record

    @rule(place=pairs)
    def remove_one(self, place: Pair) -> None:
        """One entry, as a handle clears it."""
        self.table.context.set_current_key(place[0])
        assert self.table.contains_key(place[1]) == (place in self.model)
        assert self.table.remove_and_get_old(place[1]) == self.model.pop(place, None)

    @precondition(lambda self: len(self.taken) < 4)
    @rule()
    def snapshot(self) -> None:
        """Take a snapshot."""
        self.taken.append(Taken(self.table.registry.snapshot(), dict(self.model)))

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), elsewhere=st.booleans())
    def release(self, data: st.DataObject, elsewhere: bool) -> None:
        """Release one, on this or on another thread."""
        taken = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        if elsewhere:
            thread = threading.Thread(target=taken.point.release)
            thread.start()
            thread.join()
        else:
            taken.point.release()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Roll back to any live snapshot; newer ones stay."""
        taken = data.draw(st.sampled_from(self.taken))
        self.table.registry.roll_back(taken.point)
        self.model = dict(taken.content)

    @invariant()
    def same_content(self) -> None:
        """Live content, every snapshot, and the changes since each."""
        self.table.check_invariants()
        self.table.registry.check_invariants()
        assert {(key, namespace): record for key, namespace, record in self.table} == self.model
        assert len(self.table) == len(self.model)
        for taken in self.taken:
            assert content_at(self.table, taken.point) == taken.content
            after = dict(taken.content)
            seen = set()
            for group, (key, namespace, steps) in self.table.changes(taken.point):
                assert group == self.table.context.grouper(key)
                assert (key, namespace) not in seen
                seen.add((key, namespace))
                new = apply_ops(after.pop((key, namespace), ABSENT), steps)
                if new is not ABSENT:
                    after[key, namespace] = new
            assert after == self.model
            differ = {p for p in {*taken.content, *self.model} if taken.content.get(p) != self.model.get(p)}
            assert differ <= seen


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Any:
    """Let a reader need several chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_chunks, "CHUNK_ROWS", 5)
        yield


TestColumnTable = ColumnTableMachine.TestCase
TestColumnTable.settings = settings(
    max_examples=examples(160 if COMPILED else 60), stateful_step_count=30, deadline=None
)


def test_an_older_snapshot_outlives_a_roll_back_of_the_same_row() -> None:
    """Catches: a row that is saved a second time in an older snapshot's image, as it was after that snapshot. The
    background writes that snapshot while a batch is rolled back and repeated."""
    table = make_table()
    table.context.set_current_key("k1")
    table.put("", Total(1))
    with table.registry.snapshot() as older:
        table.put("", Total(2))
        with table.registry.snapshot() as batch_start:
            table.put("", Total(3))
            table.registry.roll_back(batch_start)
        table.put("", Total(4))
        table.check_invariants()
        assert content_at(table, older) == {("k1", ""): Total(1)}


def test_expiring_entries_keep_their_stamp() -> None:
    """Catches: a stamp that is lost, shared by a snapshot, or left out of what changed."""
    table = make_table(stamped=True)
    table.context.set_current_key("k1")
    table.put("", Stamped(Total(1), 5))
    with table.registry.snapshot() as point:
        table.put("", Stamped(Total(1), 9))
        [(_, (_, _, [(_, content)]))] = table.changes(point)
        assert content == Stamped(Total(1), 9)
        [entry] = [e for group in range(4) for e in table.entries(group, point)]
        assert entry == ("k1", "", Stamped(Total(1), 5))


@pytest.mark.parametrize("wrong", [Total(2**63), Total(1.5), Total(True), Total(None), Total(1, best="x")])  # type: ignore[arg-type]
def test_what_a_column_cannot_hold(wrong: Total) -> None:
    """Catches: a number that is cut or wraps around on its way into a column."""
    table = make_table()
    table.context.set_current_key("k1")
    with pytest.raises(StateTypeError):
        table.put("", wrong)
    assert len(table) == 0
    table.check_invariants()


def test_foreign_key_groups() -> None:
    """Catches: a key that is stored in a key group of another slot, or in another than its hash gives."""
    table = make_table()
    data, offsets, groups, numbers = batch(table, [("k1", "")])
    with pytest.raises(StateDeclarationError):
        table.rows_of(data, offsets, np.array([4], np.int32), numbers)
    table.rows_of(data, offsets, groups, numbers)
    with pytest.raises(StateDeclarationError):
        table.rows_of(data, offsets, (groups + 1) % 4, numbers)


def test_iteration_notices_changes() -> None:
    """Catches: an iteration that goes on over rows that have become another key's."""
    table = make_table()
    for key in KEYS:
        table.context.set_current_key(key)
        table.put("", Total(1))
    with pytest.raises(RuntimeError):
        for key in table.keys(""):
            table.context.set_current_key(key)
            table.remove("")
