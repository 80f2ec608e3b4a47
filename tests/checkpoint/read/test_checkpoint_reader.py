"""The read-only reader: what a checkpoint holds, for any key, and as Arrow, without the classes of the job."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import logging
import random
import uuid
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers
from emberstate.checkpoint.manifest.pins import pins
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.restored_groups import CACHED_GROUPS
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.codec import pickle_codec
from emberstate.errors import (
    CheckpointCollectedError,
    CorruptionError,
    LifecycleError,
    RestoreRefusedError,
    StateDeclarationError,
    StateTypeError,
)
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.states import AggregateFunction
from emberstate.state.timers import Timer
from emberstate.state.ttl.config import TtlConfig, TtlTime
from emberstate.storage.local import LocalStorage
from emberstate.testing.faults import FaultPlan, FaultyStorage
from tests.checkpoint.counting import COUNT, LOG, OPERATOR, SEEN, small_job
from tests.checkpoint.states import GROUPS, put, states_job
from tests.checkpoint.stored import SharedMemory
from tests.checkpoint.threads import Thread
from tests.effort import examples
from tests.raising import raising


class Mean(AggregateFunction[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]


VALUE = ValueStateDescriptor("value", str)
LIST = ListStateDescriptor("list", int)
MAP = MapStateDescriptor("map", str, int)
REDUCED = ReducingStateDescriptor("reduced", max, int)
MEAN = AggregatingStateDescriptor("mean", Mean(), tuple[float, int])
ALL: list[StateDescriptor] = [VALUE, LIST, MAP, REDUCED, MEAN]


# -- opening --------------------------------------------------------------------------------------------------


def test_opening_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    """Catches: the wrong checkpoint opened; a reader that writes; an error that does not say what there is."""
    storage = LocalStorage(tmp_path / "checkpoints")
    with raising(CheckpointCollectedError, str(tmp_path)):
        CheckpointReader.open(storage)
    job = small_job(storage, retained=2)
    job.open()
    for number in range(4):
        job.feed(f"word-{number}")
    job.coordinator.savepoint("s")
    before = sorted(tmp_path.rglob("*"))
    assert CheckpointReader.open(str(tmp_path / "checkpoints")).manifest.number == 5
    assert CheckpointReader.open(tmp_path / "checkpoints", 4).manifest.number == 4
    assert CheckpointReader.open(storage, savepoint="s").manifest.kind == "savepoint"
    with raising(CheckpointCollectedError, checkpoint=1, found=(4, 5)):
        CheckpointReader.open(storage, 1)
    with raising(StateDeclarationError, option="number"):
        CheckpointReader.open(storage, 4, savepoint="s")
    reader = CheckpointReader.open(storage)
    with raising(StateDeclarationError, "counts", operator="word"):
        reader.get("word", COUNT, "ann")
    with raising(StateDeclarationError, r"\['count', 'log', 'seen', 'timers/event'\]", state="coun"):
        reader.to_arrow(OPERATOR, "coun")
    with raising(StateDeclarationError, operator=OPERATOR, key_group=8):
        reader.to_arrow(OPERATOR, "count", [8])
    with pytest.raises(StateTypeError):
        reader.get(OPERATOR, COUNT, 5)
    assert sorted(tmp_path.rglob("*")) == before
    reader.close()
    reader.close()
    with raising(LifecycleError, "closed"):
        reader.get(OPERATOR, COUNT, "ann")


def test_every_checkpoint_reads_as_it_was() -> None:
    """Catches: a reader that mixes checkpoints, slots, key groups or chains."""
    storage = SharedMemory()
    job = small_job(storage, retained=50, parallelism=3)
    job.open()
    for number in range(20):
        job.feed("ann", "bob", f"word-{number % 7}")
        if number == 10:
            job.parallelism = 2
            job.open()
    job.coordinator.savepoint("s")
    readers = [CheckpointReader.open(storage, number) for number in checkpoint_numbers(storage)]
    for reader in [*readers, CheckpointReader.open(storage, savepoint="s")]:
        manifest = reader.manifest
        model = job.model if manifest.kind == "savepoint" else job.models[manifest.id]
        for word in [*model, "nobody"]:
            count, log, seen, _ = model.get(word, (0, [], {}, []))
            assert reader.get(OPERATOR, COUNT, word).value() == count
            assert list(reader.get(OPERATOR, LOG, word).get()) == log
            assert dict(reader.get(OPERATOR, SEEN, word)) == seen
        if model:
            assert sorted(reader.keys(OPERATOR, "count")) == sorted(model)
            rows = {row["key"]: row["value"] for row in reader.to_arrow(OPERATOR, "count").to_pylist()}
            assert rows == {word: entry[0] for word, entry in model.items()}
            pairs = {(row["key"], row["user_key"]) for row in reader.to_arrow(OPERATOR, "seen").to_pylist()}
            assert pairs == {(word, kind) for word, entry in model.items() for kind in entry[2]}


# -- one key --------------------------------------------------------------------------------------------------


def test_all_kinds_of_state_read_only() -> None:
    """Catches: a kind that cannot be read, or can be changed."""
    storage = SharedMemory()
    job = states_job(storage, *ALL)
    job.feed(
        *[("ann", put(VALUE, "hello")), ("ann", put(LIST, [1, 2])), ("ann", put(MAP, {"a": 1, "b": None}))],
        *[("ann", put(REDUCED, number)) for number in (3, 7, 5)],
        *[("ann", put(MEAN, number)) for number in (1.0, 2.0, 6.0)],
    )
    reader = CheckpointReader.open(storage)
    assert reader.get("op", VALUE, "ann").value() == "hello"
    assert reader.get("op", LIST, "ann").get() == [1, 2]
    assert dict(reader.get("op", MAP, "ann")) == {"a": 1, "b": None}
    assert reader.get("op", REDUCED, "ann").get() == 7
    assert reader.get("op", MEAN, "ann").get() == 3.0
    for state in ALL:
        with pytest.raises(StateTypeError):
            reader.get("op", state, "ann").clear()
    assert reader.get("op", ValueStateDescriptor("value", str, default="?"), "bob").value() == "?"
    assert [reader.get("op", state, "bob").get() for state in (LIST, REDUCED, MEAN)] == [[], None, None]
    assert reader.get("op", MAP, "bob").is_empty()
    assert [stored.name for stored in reader.states("op")] == ["list", "map", "mean", "reduced", "value", "event"]


def test_a_descriptor_that_does_not_fit_is_refused() -> None:
    """Catches: bytes of one type shown as another."""
    storage = SharedMemory()
    job = states_job(storage, *ALL)
    job.feed(("ann", put(VALUE, "hello")))
    reader = CheckpointReader.open(storage)
    with raising(RestoreRefusedError, "int", state="value"):
        reader.get("op", ValueStateDescriptor("value", int), "ann")
    with raising(RestoreRefusedError, "map state", state="value"):
        reader.get("op", MapStateDescriptor("value", str, str), "ann")
    with raising(RestoreRefusedError, "namespace", state="value"):
        reader.get("op", VALUE, "ann", (1, 2), namespace_type=tuple[int, int])
    assert reader.get("op", VALUE, "ann").value() == "hello"


def test_only_the_key_group_is_read_and_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: a whole state read for one key; a cache without a bound, or for another descriptor; noise in the log."""
    inner, plan = SharedMemory(), FaultPlan({})
    job = states_job(inner, *ALL, parallelism=1, inline_bytes=0)
    rng = random.Random(7)
    words = {f"word-{number}": rng.randbytes(4096).hex() for number in range(200)}
    job.feed(*[(word, put(VALUE, content)) for word, content in words.items()])
    for number in range(4):  # until the delta of everything has become a base
        job.feed(("ann", put(VALUE, f"x{number}")))
    with caplog.at_level(logging.INFO, "emberstate"):
        reader = CheckpointReader.open(FaultyStorage(inner, plan))
        size = sum(file.place.size for slot in reader.manifest.operators[0].slots for file in slot.files)
        assert size > 256 * 1024
        read = inner.statistics().bytes_read
        assert reader.get("op", VALUE, "word-0").value() == words["word-0"]
        assert inner.statistics().bytes_read - read < size / 4
        plan.calls.clear()
        assert reader.get("op", VALUE, "word-0").value() == words["word-0"]
        assert plan.calls == []
        with pytest.raises(RestoreRefusedError):
            reader.get("op", ValueStateDescriptor("value", int), "word-0")
        for word in words:
            reader.get("op", VALUE, word)
        assert reader.statistics().groups_restored == GROUPS
        assert reader.statistics().groups_cached <= CACHED_GROUPS
    assert caplog.records == []


def test_namespaces_and_timers() -> None:
    """Catches: one window's state shown for another's; timers lost, or out of order."""
    storage = SharedMemory()
    job = states_job(storage, MAP, namespace_type=tuple[int, int])

    def register(backend: KeyedStateBackend) -> None:
        queue = backend.get_timer_queue("event")
        for time, name in ((9, "b"), (9, "a"), (3, "z")):
            queue.register(time, name, f"window of {name}")

    job.feed(("ann", put(MAP, {"a": 1}, (0, 10))), ("ann", put(MAP, {"b": 2}, (10, 20))), ("ann", register))
    reader = CheckpointReader.open(storage)
    windows = {"namespace_type": tuple[int, int]}
    assert dict(reader.get("op", MAP, "ann", (0, 10), **windows)) == {"a": 1}
    assert dict(reader.get("op", MAP, "ann", (10, 20), **windows)) == {"b": 2}
    assert dict(reader.get("op", MAP, "ann", (20, 30), **windows)) == {}
    assert reader.to_arrow("op", "map").to_pylist() == [
        {"key": "ann", "namespace": {"_0": 0, "_1": 10}, "user_key": "a", "value": 1},
        {"key": "ann", "namespace": {"_0": 10, "_1": 20}, "user_key": "b", "value": 2},
    ]
    expected = [Timer(time, "ann", name, f"window of {name}") for time, name in ((3, "z"), (9, "a"), (9, "b"))]
    assert reader.timers("op", "event", "ann") == expected
    assert reader.timers("op", "event", "bob") == []
    assert list(reader.keys("op", "timers/event")) == ["ann"]
    table = reader.to_arrow("op", "timers/event")
    assert table.column_names == ["key", "time", "name", "namespace"]
    assert table.column("time").cast(pa.int64()).to_pylist() == [3, 9, 9]


def test_time_to_live_is_that_of_the_checkpoint() -> None:
    """Catches: what had expired shown as live, or what is stored hidden from a table; stamps lost."""
    processing = MapStateDescriptor("processing", str, int, ttl=TtlConfig(timedelta(seconds=10)))
    event = ValueStateDescriptor("event-time", int, ttl=TtlConfig(timedelta(seconds=10), time=TtlTime.EVENT))
    storage = SharedMemory()
    job = states_job(storage, processing, event, retained=5)
    job.feed(("ann", put(processing, {"old": 1})), ("ann", put(event, 5)), watermark=1_000_000)
    job.clock.advance(6_000_000)
    job.feed(("ann", lambda b: b.get_partitioned_state(processing).put("new", 2)), watermark=11_000_000)
    job.clock.advance(6_000_000)
    job.feed(("bob", put(event, 7)), watermark=11_000_000)
    reader = CheckpointReader.open(storage)
    assert dict(reader.get("op", processing, "ann")) == {"new": 2}
    assert reader.get("op", event, "ann").value() is None
    assert reader.get("op", event, "bob").value() == 7
    first = CheckpointReader.open(storage, 2)
    assert (dict(first.get("op", processing, "ann")), first.get("op", event, "ann").value()) == ({"old": 1}, 5)
    table = reader.to_arrow("op", "processing")
    assert table.schema.field("stamp").type == pa.timestamp("us", "UTC")
    stamps = table.column("stamp").cast(pa.int64()).to_pylist()
    assert dict(zip(table.column("user_key").to_pylist(), stamps, strict=True)) == {"old": 1_000_000, "new": 7_000_000}


# -- as Arrow -------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int | None


class Note(TypedDict):
    text: str
    stars: NotRequired[int]


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    lines: list[Point]
    paid: decimal.Decimal | None = None


class Tagged(msgspec.Struct, tag="t"):
    n: int


NOON = datetime.datetime(2024, 1, 2, 12, tzinfo=UTC)
ID = uuid.UUID(int=7)
CASES: list[tuple[Any, Any, pa.DataType, Any]] = [
    (bool, True, pa.bool_(), True),
    (int, 2**63 - 1, pa.int64(), 2**63 - 1),
    (float, 0.5, pa.float64(), 0.5),
    (str, "ä", pa.string(), "ä"),
    (bytes, b"\0", pa.binary(), b"\0"),
    (datetime.datetime, NOON, pa.timestamp("us", "UTC"), NOON),
    (datetime.datetime, NOON.replace(tzinfo=None), pa.timestamp("us"), NOON.replace(tzinfo=None)),
    (datetime.date, NOON.date(), pa.date32(), NOON.date()),
    (datetime.time, datetime.time(1, 2, 3, 4), pa.time64("us"), datetime.time(1, 2, 3, 4)),
    (timedelta, timedelta(days=-1, microseconds=5), pa.duration("us"), timedelta(days=-1, microseconds=5)),
    (decimal.Decimal, decimal.Decimal("-12.340"), pa.decimal128(5, 3), decimal.Decimal("-12.340")),
    (decimal.Decimal, decimal.Decimal("1E+2"), pa.decimal128(3, 0), decimal.Decimal(100)),
    (decimal.Decimal, decimal.Decimal("0.001"), pa.decimal128(4, 3), decimal.Decimal("0.001")),
    (decimal.Decimal, decimal.Decimal("1E-70"), pa.decimal256(71, 70), decimal.Decimal("1E-70")),
    (decimal.Decimal, decimal.Decimal("1E-90"), pa.string(), "1E-90"),
    (uuid.UUID, ID, pa.string(), str(ID)),
    (Colour, Colour.BLUE, pa.string(), "BLUE"),
    (list[int], [1, 2], pa.list_(pa.int64()), [1, 2]),
    (set[str], {"a"}, pa.list_(pa.string()), ["a"]),
    (tuple[int, ...], (1, 2), pa.list_(pa.int64()), [1, 2]),
    (tuple[int, str], (1, "a"), pa.struct([("_0", pa.int64()), ("_1", pa.string())]), {"_0": 1, "_1": "a"}),
    (dict[str, list[int]], {"a": [1]}, pa.map_(pa.string(), pa.list_(pa.int64())), [("a", [1])]),
    (
        dict[tuple[int, int], int],
        {(1, 2): 3},
        pa.map_(pa.struct([("_0", pa.int64()), ("_1", pa.int64())]), pa.int64()),
        [({"_0": 1, "_1": 2}, 3)],
    ),
    (Point, Point(1, None), pa.struct([("x", pa.int64()), ("y", pa.int64())]), {"x": 1, "y": None}),
    (Note, {"text": "hi"}, pa.struct([("text", pa.string()), ("stars", pa.int64())]), {"text": "hi", "stars": None}),
    (
        Order,
        Order(ID, [Point(1, 2)], decimal.Decimal("9.99")),
        pa.struct(
            [
                ("id", pa.string()),
                ("lines", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())]))),
                ("paid", pa.decimal128(3, 2)),
            ]
        ),
        {"id": str(ID), "lines": [{"x": 1, "y": 2}], "paid": decimal.Decimal("9.99")},
    ),
    (int | None, 5, pa.int64(), 5),
    (int | str, "a", pa.binary(), msgspec.msgpack.encode("a")),
    (Tagged, Tagged(4), pa.struct([("n", pa.int64())]), {"n": 4}),
]


@pytest.mark.parametrize(("type_", "value", "arrow", "expected"), CASES, ids=lambda case: str(case)[:40])
def test_types_as_arrow(type_: Any, value: Any, arrow: pa.DataType, expected: Any) -> None:
    """Catches: a type that cannot be exported, loses something, or needs its class."""
    state: ListStateDescriptor[Any] = ListStateDescriptor("s", type_)
    storage = SharedMemory()
    states_job(storage, state).feed(("ann", put(state, [value])))
    table = CheckpointReader.open(storage).to_arrow("op", "s")
    assert table.column_names == ["key", "namespace", "position", "value"]
    assert table.schema.field("value").type == arrow
    assert table.to_pylist() == [{"key": "ann", "namespace": "", "position": 0, "value": expected}]
    table.validate(full=True)


def test_datetimes_with_and_without_zones_in_one_column() -> None:
    """Catches: a zone invented or lost."""
    state = ListStateDescriptor("s", datetime.datetime)
    storage = SharedMemory()
    job = states_job(storage, state)
    job.feed(("ann", put(state, [NOON])), ("bob", put(state, [NOON.replace(tzinfo=None)])))
    reader = CheckpointReader.open(storage)
    table = reader.to_arrow("op", "s")
    assert sorted(table.column("value").to_pylist()) == ["2024-01-02T12:00:00", "2024-01-02T12:00:00+00:00"]
    for group in range(GROUPS):  # a part of a table has the types of the whole
        assert reader.to_arrow("op", "s", [group]).schema == table.schema


def test_pickled_state_is_not_unpickled() -> None:
    """Catches: code that runs because a table was asked for."""
    state = ValueStateDescriptor("s", pickle_codec(Bomb, allow=[Bomb]))
    storage = SharedMemory()
    states_job(storage, state).feed(("ann", put(state, Bomb())))
    Bomb.unpickled = 0
    (row,) = CheckpointReader.open(storage).to_arrow("op", "s").to_pylist()
    assert type(row["value"]) is bytes
    assert Bomb.unpickled == 0


class Bomb:
    unpickled = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bomb)

    def __hash__(self) -> int:
        return 0

    def __setstate__(self, state: object) -> None:
        Bomb.unpickled += 1

    def __getstate__(self) -> object:
        return {"a": 1}


@pytest.mark.parametrize(
    ("key", "value", "types"),
    [
        (int, 5, [pa.int64()]),
        (bytes, b"x", [pa.binary()]),
        (datetime.date, NOON.date(), [pa.date32()]),
        ((str, int), ("a", 1), [pa.string(), pa.int64()]),
    ],
)
def test_keys_as_columns(key: Any, value: Any, types: list[pa.DataType]) -> None:
    """Catches: keys of several columns, or of other types, that cannot be read."""
    storage = SharedMemory()
    states_job(storage, VALUE, key=key).feed((value, put(VALUE, "v")))
    reader = CheckpointReader.open(storage)
    table = reader.to_arrow("op", "value")
    names = ["key"] if len(types) == 1 else ["key_0", "key_1"]
    assert [table.schema.field(name).type for name in names] == types
    (row,) = table.to_pylist()
    assert tuple(row[name] for name in names) == (value if len(types) > 1 else (value,))
    assert list(reader.keys("op", "value")) == [value]
    assert reader.get("op", VALUE, value).value() == "v"


def test_types_that_changed_within_a_chain() -> None:
    """Catches: older rows lost, misread or in the wrong column after a field was added, removed or renamed."""
    old = dataclasses.make_dataclass("Bill", [("cents", int), ("note", str)])
    new = dataclasses.make_dataclass("Bill", [("amount", int), ("tip", int, dataclasses.field(default=9))])
    before: ValueStateDescriptor[Any] = ValueStateDescriptor("bill", old)
    after: ValueStateDescriptor[Any] = ValueStateDescriptor("invoice", new)
    storage = SharedMemory()
    states_job(storage, before, VALUE).feed(("ann", put(before, old(100, "x"))), ("ann", put(VALUE, "gone")))
    choices = RestoreChoices(
        rename_states={"bill": "invoice"}, rename_fields={"bill": {"cents": "amount"}}, drop_states=["value"]
    )
    job = states_job(storage, after, parallelism=3, choices=choices)
    job.feed(("bob", put(after, new(200, 5))))
    reader = CheckpointReader.open(storage)
    assert [stored.name for stored in reader.states("op")] == ["invoice", "event"]
    rows = {row["key"]: row["value"] for row in reader.to_arrow("op", "invoice").to_pylist()}
    assert rows == {"ann": {"amount": 100, "tip": None}, "bob": {"amount": 200, "tip": 5}}
    assert reader.get("op", after, "ann").value() == new(100, 9)
    assert reader.get("op", after, "bob").value() == new(200, 5)
    with raising(StateDeclarationError, operator="op", state="value"):
        reader.to_arrow("op", "value")


def test_batches_are_the_table_in_parts() -> None:
    """Catches: rows lost or doubled between parts; empty parts."""
    storage = SharedMemory()
    job = states_job(storage, MAP, parallelism=3)
    for number in range(8):
        job.feed(*[(f"word-{word}", put(MAP, {"n": number})) for word in range(number, 40)])
    reader = CheckpointReader.open(storage)
    whole = reader.to_arrow("op", "map")
    assert whole.num_rows == 40
    assert pa.Table.from_batches(reader.to_batches("op", "map")) == whole
    parts = [reader.to_arrow("op", "map", range(first, first + 5)) for first in (0, 5, 10)]
    parts.append(reader.to_arrow("op", "map", [15]))
    assert pa.concat_tables(parts).combine_chunks() == whole.combine_chunks()
    assert reader.to_arrow("op", "map", []).num_rows == 0
    values = {row["key"]: row["value"] for row in whole.to_pylist()}
    assert values == {f"word-{word}": min(word, 7) for word in range(40)}


STEP = st.tuples(
    st.sampled_from(["ann", "bob", "eve"]),
    st.one_of(
        st.tuples(st.just(VALUE), st.sampled_from([None, "a", "b"])),
        st.tuples(st.just(LIST), st.lists(st.integers(0, 9), max_size=3)),
        st.tuples(st.just(MAP), st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(0, 9))),
        st.tuples(st.just(REDUCED), st.none() | st.integers(0, 9)),
        st.tuples(st.just(MEAN), st.floats(0, 9)),
    ),
)


@settings(max_examples=examples(40))
@given(st.lists(st.lists(STEP, max_size=5), max_size=9), st.integers(1, 3))
def test_reading_equals_the_live_state(batches: list[list[Any]], parallelism: int) -> None:
    """Catches: any difference between what a function sees, what a reader gets, and what a table has."""
    storage = SharedMemory()
    job = states_job(storage, *ALL, parallelism=parallelism)
    for batch in batches:
        job.feed(*[(key, put(state, value)) for key, (state, value) in batch])
    job.feed()
    reader = CheckpointReader.open(storage)
    tables = {state.name: reader.to_arrow("op", state.name).to_pylist() if reader.states("op") else [] for state in ALL}
    for key in ("ann", "bob", "eve"):
        backend = next(slot.backend for slot in job.slots.values() if job.work.owns(slot.backend, key))
        backend.set_current_key(key)
        rows = {name: [row for row in table if row["key"] == key] for name, table in tables.items()}
        live = {state.name: backend.get_partitioned_state(state) for state in ALL}
        assert reader.get("op", VALUE, key).value() == live["value"].value()
        assert [row["value"] for row in rows["value"]] == [v for v in [live["value"].value()] if v is not None]
        assert reader.get("op", LIST, key).get() == live["list"].get() == [row["value"] for row in rows["list"]]
        pairs = {row["user_key"]: row["value"] for row in rows["map"]}
        assert dict(reader.get("op", MAP, key)) == dict(live["map"]) == pairs
        for name, state in (("reduced", REDUCED), ("mean", MEAN)):
            assert reader.get("op", state, key).get() == live[name].get()
            assert len(rows[name]) == (live[name].get() is not None)
    job.close()


def test_a_reader_that_is_handed_to_another_thread() -> None:
    """Catches: what one thread has read refused to the next."""
    storage = SharedMemory()
    states_job(storage, *ALL).feed(("ann", put(VALUE, "hello")))
    reader = CheckpointReader.open(storage)
    assert reader.get("op", VALUE, "ann").value() == "hello"
    assert Thread(lambda: reader.get("op", VALUE, "ann").value()).join() == "hello"
    assert reader.get("op", VALUE, "ann").value() == "hello"
    Thread(reader.close).join()


def test_stamps_that_were_decided_are_shown() -> None:
    """Catches: a time to live that was switched off and on again, and is shown with stamps that count no longer."""
    storage = SharedMemory()
    states: list[StateDescriptor] = [ValueStateDescriptor("value", str, ttl=TtlConfig(timedelta(hours=1)))]
    job = states_job(storage, *states)
    job.clock.set(400_000)
    job.feed(("ann", put(states[0], "old")))
    states_job(storage, VALUE)
    again = states_job(storage, *states)  # at 1,000,000 µs
    reader = CheckpointReader.open(storage)
    assert [row["stamp"].microsecond for row in reader.to_arrow("op", "value").to_pylist()] == [0]
    assert reader.to_arrow("op", "value").to_pylist()[0]["stamp"].second == 1
    again.close()


# -- while it is read -----------------------------------------------------------------------------------------


def test_collected_while_it_is_read() -> None:
    """Catches: what was collected taken for damage, or for an empty state."""
    storage = SharedMemory()
    job = small_job(storage, retained=1, inline_bytes=0)
    job.open()
    job.feed("ann", "bob")
    one, other = CheckpointReader.open(storage), CheckpointReader.open(storage)
    for number in range(20):
        job.feed("ann", "bob", f"word-{number}")
    with raising(CheckpointCollectedError, checkpoint=one.manifest.number):
        one.get(OPERATOR, COUNT, "ann")
    with raising(CheckpointCollectedError, "pin", checkpoint=other.manifest.number):
        other.to_arrow(OPERATOR, "count")


def test_a_pinned_checkpoint_can_be_read_to_the_end() -> None:
    """Catches: a pin that does not hold, or is not released with its reader."""
    storage = SharedMemory()
    job = small_job(storage, retained=1, inline_bytes=0)
    job.open()
    job.feed("ann", "bob")
    with CheckpointReader.open(storage, pin_for="a test") as reader:
        for number in range(20):
            job.feed("ann", "bob", f"word-{number}")
        assert reader.get(OPERATOR, COUNT, "ann").value() == 1
        assert [held.number for held in pins(storage)] == [reader.manifest.number]
    assert pins(storage) == []
    with pytest.raises(CheckpointCollectedError):
        CheckpointReader.open(storage, 99, pin_for="a test")
    assert pins(storage) == []


def test_the_newest_is_found_though_others_go() -> None:
    """Catches: a reader that fails because a job commits and collects between its listing and its reading."""
    inner, plan = SharedMemory(), FaultPlan({})
    job = small_job(inner, retained=1)
    job.open()
    job.feed("ann")

    class Racing(FaultyStorage):
        """A storage in which the job goes on after each of the first listings."""

        races = 3

        def list(self, prefix: str = "") -> Any:
            found = super().list(prefix)
            if prefix == "checkpoints" and self.races:
                self.races -= 1
                job.feed("ann")
            return found

    for pin_for in (None, "a test"):
        reader = CheckpointReader.open(Racing(inner, plan), pin_for=pin_for)
        assert reader.get(OPERATOR, COUNT, "ann").value() == job.model["ann"][0]
        reader.close()


@pytest.mark.reliability(7)
def test_damage_is_not_called_collected() -> None:
    """Catches: a missing, exchanged or damaged file of a checkpoint that is there shown as something else."""
    storage = SharedMemory()
    job = small_job(storage, retained=1, inline_bytes=0)
    job.open()
    job.feed("ann", "bob", "eve", "joe", "sue")
    paths = sorted({ref.path for ref in job.coordinator.latest.file_refs() if ref.path.startswith("state")})
    contents = {path: storage.read(path) for path in paths}
    assert len(paths) == 2
    damaged: list[tuple[dict[str, bytes], str]] = [
        ({paths[1]: contents[paths[1]]}, "names a missing file"),
        ({paths[0]: contents[paths[1]], paths[1]: contents[paths[0]]}, paths[0]),
        ({path: data[:-1] + b"x" for path, data in contents.items()}, "damaged or was replaced"),
        (dict.fromkeys(paths, b""), paths[0]),
    ]
    for files, message in damaged:
        for path in paths:
            storage.delete(path)
        for path, data in files.items():
            storage.write_new(path, data)
        reader = CheckpointReader.open(storage)
        with pytest.raises(CorruptionError) as caught:
            reader.to_arrow(OPERATOR, "count")
        assert message in str(caught.value) or paths[1] in str(caught.value)
