"""Bootstrapping without Spark: a table becomes a savepoint, a job starts from it and goes on."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import emberstate as es
from emberstate import errors
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.manifest.catalogue import savepoint_names
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.errors import RowTypeError, StateTypeError, StorageExistsError
from emberstate.keygroups import KeySchema
from emberstate.storage.local import LocalStorage
from emberstate.storage.memory import MemoryStorage
from emberstate.testing import Harness
from tests.raising import raising

T0 = datetime.datetime(2026, 1, 1, tzinfo=UTC)


class Tier(enum.Enum):
    BASIC = 1
    GOLD = 2


class Place(NamedTuple):
    city: str
    zip: int


@dataclasses.dataclass
class Card:
    holder: str
    tier: Tier
    limits: dict[str, decimal.Decimal]
    places: list[Place]
    opened: datetime.datetime


class Mean(es.AggregateFunction[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]


class Cards(es.KeyedProcessFunction):
    """Every kind of state; one of them is asked for in `open`."""

    card = es.value_state(Card)
    seen = es.map_state(str, int, ttl=timedelta(hours=1))
    last = es.list_state(str)
    most = es.reducing_state(max, float)
    mean = es.aggregating_state(Mean(), tuple[float, int])

    def open(self, ctx: es.FunctionContext) -> None:
        self.count = ctx.get_value_state(es.ValueStateDescriptor("count", int, default=0))

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.seen[row.merchant] = self.seen.get(row.merchant, 0) + 1
        self.last.add(row.merchant)
        self.most.add(row.amount)
        self.mean.add(row.amount)
        card = self.card.value()
        yield (
            row.card, None if card is None else card.holder, self.count.value(), dict(self.seen), list(self.last),
            self.most.get(), self.mean.get(),
        )  # fmt: skip


SCHEMA = "card string, merchant string, amount double"
OUTPUT = "card string, holder string, n bigint, seen map<string,bigint>, last array<string>, most double, mean double"
ANN = {
    "holder": "Ann",
    "tier": "GOLD",
    "limits": [("day", decimal.Decimal("9.50"))],
    "places": [{"city": "Oslo", "zip": 1}],
    "opened": T0,
}
CARD_TYPE = pa.struct(
    {
        "holder": pa.string(),
        "tier": pa.string(),
        "limits": pa.map_(pa.string(), pa.decimal128(10, 2)),
        "places": pa.list_(pa.struct({"city": pa.string(), "zip": pa.int32()})),
        "opened": pa.timestamp("us", "UTC"),
    }
)


def cards_table() -> pa.Table:
    return pa.table(
        {
            "card": pa.array(["ann", "bob", "eve"]),
            "state_of_card": pa.array([ANN, None, None], CARD_TYPE),
            "seen": pa.array([[("cafe", 2), ("shop", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "last": pa.array([["cafe", "shop", "cafe"], [], None], pa.list_(pa.string())),
            "most": pa.array([9.5, 2.0, None]),
            "mean": pa.array([{"_0": 12.0, "_1": 3}, None, None], pa.struct({"_0": pa.float64(), "_1": pa.int64()})),
            "n": pa.array([3, 1, None], pa.int32()),
            "other": pa.array([datetime.time(1), None, None]),  # a type that Spark has not
        }
    )


COLUMNS = {
    "card": "state_of_card", "seen": "seen", "last": "last", "most": "most", "mean": "mean", "count": "n",
}  # fmt: skip


def boot(location: Any, table: pa.Table, states: Any = None, **options: Any) -> Any:
    given: dict[str, Any] = {"job": "cards", "operator": "cards", "key": "card", "written_at": T0}
    states = Cards() if states is None else states
    return es.bootstrap_savepoint(table, location, options.pop("name", "boot"), states=states, **{**given, **options})


def started(location: Path, source: Path, key: Sequence[str] = ("string",)) -> es.FsStateBackend:
    """Where a job can go on that was started from the savepoint."""
    spec = OperatorSpec(name="cards", key_schema=KeySchema(key), parallelism=2)
    CheckpointCoordinator.open(LocalStorage(location), "cards", [spec], savepoint=(LocalStorage(source), "boot"))
    return es.FsStateBackend(str(location))


def test_a_job_starts_from_it_and_goes_on(tmp_path: Path) -> None:
    """Catches: values of any kind that a function does not see as if it had written them; a state left out."""
    boot(tmp_path / "boot", cards_table(), columns=COLUMNS)
    backend = started(tmp_path / "job", tmp_path / "boot")
    with Harness(
        Cards(), schema=SCHEMA, key="card", output=OUTPUT, name="cards", state_backend=backend, parallelism=3,
        processing_time=T0 + timedelta(minutes=30),
    ) as harness:  # fmt: skip
        found = harness.process(("ann", "cafe", 4.0), ("bob", "bar", 1.0), ("eve", "bar", 1.0))
        assert sorted(map(tuple, found)) == [
            ("ann", "Ann", 4, {"cafe": 3, "shop": 1}, ["cafe", "shop", "cafe", "cafe"], 9.5, 4.0),
            ("bob", None, 2, {"bar": 1}, ["bar"], 2.0, 1.0),
            ("eve", None, 1, {"bar": 1}, ["bar"], 1.0, 1.0),
        ]
        assert harness.state("card", "ann") == Card(
            "Ann", Tier.GOLD, {"day": decimal.Decimal("9.50")}, [Place("Oslo", 1)], T0
        )
        harness.advance_processing_time(T0 + timedelta(minutes=61))
        (row,) = harness.process(("ann", "pub", 1.0))
        assert row.seen == {"cafe": 3, "pub": 1}  # the shop was written at T0, and has expired


def test_a_key_may_have_rows_about_different_states(tmp_path: Path) -> None:
    """Catches: tables that cannot be put together by a union; user keys in rows of their own."""
    table = pa.table(
        {
            "card": ["ann", "ann", "ann", "bob"],
            "merchant": ["cafe", None, "shop", "cafe"],
            "visits": [2, None, 1, None],
            "total": [None, 9.5, None, None],
        }
    )
    states = [es.MapStateDescriptor("seen", str, int), es.ValueStateDescriptor("total", float)]
    boot(tmp_path, table, states, columns={"seen": ("merchant", "visits"), "total": "total"})
    found = es.read_state(tmp_path, "seen", savepoint="boot").to_pylist()
    seen = {(row["key"], row["user_key"]): row["value"] for row in found}
    assert seen == {("ann", "cafe"): 2, ("ann", "shop"): 1, ("bob", "cafe"): None}
    assert es.read_state(tmp_path, "total", savepoint="boot").num_rows == 1


def test_what_is_read_can_be_written_again(tmp_path: Path) -> None:
    """Catches: a table of state that does not become the same state."""
    boot(tmp_path, cards_table(), columns=COLUMNS)
    for name, columns in {"card": "value", "seen": ("user_key", "value"), "most": "value", "mean": "value"}.items():
        table = es.read_state(tmp_path, name, savepoint="boot")
        boot(tmp_path, table, name=f"again-{name}", key="key", columns={name: columns})
        assert es.read_state(tmp_path, name, savepoint=f"again-{name}") == table


@pytest.mark.parametrize(
    ("types", "column"),
    [
        ("string", pa.array(["a", "ä", ""])),
        ("bigint", pa.array([1, -1, 2], pa.int16())),
        ("double", pa.array([1.5, -0.0, 2.0], pa.float32())),
        ("binary", pa.array([b"a", b"\xff", b""], pa.large_binary())),
        ("boolean", pa.array([True, False])),
        ("date", pa.array([datetime.date(2026, 1, 1), datetime.date(1, 1, 1)])),
        ("timestamp", pa.array([T0, T0 + timedelta(seconds=1)], pa.timestamp("ns", "Europe/Oslo"))),
        ("timestamp_ntz", pa.array([datetime.datetime(2026, 1, 1)], pa.timestamp("us"))),
        ("decimal(10,2)", pa.array([decimal.Decimal("1.50"), decimal.Decimal("-2.00")], pa.decimal128(10, 2))),
    ],
)
def test_every_type_of_key(tmp_path: Path, types: str, column: pa.Array) -> None:
    """Catches: a key that is in another key group, or another key, than the job will ask for."""
    table = pa.table({"card": column, "n": list(range(len(column)))})
    made = boot(tmp_path, table, [es.ValueStateDescriptor("n", int)])
    assert made.operators[0].key_schema == (types,)
    for row in es.read_state(tmp_path, "n", savepoint="boot").to_pylist():
        (found,) = es.read_state(tmp_path, "n", savepoint="boot", key=row["key"]).to_pylist()
        assert found == row
    pair = pa.table({"card": column, "part": ["x"] * len(column), "n": list(range(len(column)))})
    made = boot(tmp_path, pair, [es.ValueStateDescriptor("n", int)], name="pair", key=["card", "part"])
    assert made.operators[0].key_schema == (types, "string")
    assert es.read_state(tmp_path, "n", savepoint="pair").num_rows == len(column)


@pytest.mark.parametrize(
    ("column", "state", "word"),
    [
        (["x"], es.ValueStateDescriptor("s", int), "takes int"),
        ([[1, None]], es.ListStateDescriptor("s", int), "no null"),
        ([5], es.ListStateDescriptor("s", int), "takes a list"),
        ([5], es.MapStateDescriptor("s", str, int), "takes a map"),
        (
            pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64())),
            es.MapStateDescriptor("s", str, int),
            "user key",
        ),
    ],
)
def test_a_wrong_value_names_its_key(column: Any, state: Any, word: str) -> None:
    """Catches: a wrong value among millions that nobody can find; a savepoint without it."""
    storage = MemoryStorage()
    with raising(StateTypeError, word, state="s", key="ann"):
        boot(storage, pa.table({"card": ["ann"], "s": column}), [state])
    assert storage.list() == []


@pytest.mark.parametrize(
    ("table", "options", "column"),
    [
        ({"card": ["ann", None], "s": [1, 2]}, {}, "card"),
        ({"card": ["a", "b"], "x": [None, 1], "s": [1, 2]}, {"key": ["card", "x"]}, "x"),
    ],
)
def test_a_row_without_a_key_is_refused(table: Any, options: Any, column: str) -> None:
    """Catches: rows that are dropped, or end up under some key."""
    storage = MemoryStorage()
    with raising(RowTypeError, column=column):
        boot(storage, pa.table(table), [es.ValueStateDescriptor("s", int)], **options)
    assert storage.list() == []


def test_a_key_that_comes_twice_is_named() -> None:
    """Catches: one of two rows that is silently lost."""
    storage = MemoryStorage()
    table = pa.table({"card": ["ann", "bob", "ann"], "s": [1, 2, 3]})
    with raising(StateTypeError, "more than once", state="s", key="ann"):
        boot(storage, table, [es.ValueStateDescriptor("s", int)])
    assert storage.list() == []


class Broadcasting(es.KeyedBroadcastProcessFunction):
    rules = es.broadcast_state(str, int)
    s = es.value_state(int)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any: ...

    def process_broadcast_element(self, row: Any, ctx: es.FunctionContext) -> Any: ...


class Two(es.KeyedCoProcessFunction):
    s = es.value_state(int)

    def process_element1(self, row: Any, ctx: es.FunctionContext) -> Any: ...

    def process_element2(self, row: Any, ctx: es.FunctionContext) -> Any: ...


STATE = [es.ValueStateDescriptor("s", int)]


@pytest.mark.parametrize(
    ("columns", "options", "place"),
    [
        (["card", "s", "t"], {"states": STATE}, {"option": "columns", "column": "t"}),
        (["card"], {"states": STATE}, {"option": "columns"}),
        (["card", "s"], {"states": STATE, "columns": {}}, {"option": "columns"}),
        (["card", "s"], {"states": STATE, "columns": {"t": "s"}}, {"option": "columns", "state": "t"}),
        (["card", "s"], {"states": STATE, "columns": {"s": "x"}}, {"column": "x"}),
        (["card", "s"], {"states": STATE, "columns": {"s": ("card", "s")}}, {"option": "columns", "state": "s"}),
        (["card", "s"], {"states": STATE, "key": "x"}, {"column": "x"}),
        (["card", "s"], {"states": ["s"]}, {"option": "states"}),
        (["card", "s"], {"states": STATE * 2}, {"option": "states", "found": ["s", "s"]}),
        (["card", "s"], {"states": Broadcasting(), "columns": {"rules": "s"}}, {"state": "rules"}),
        (["card", "s"], {"states": STATE, "max_parallelism": 0}, {"option": "max_parallelism"}),
        (["card", "s"], {"states": [es.ValueStateDescriptor("s", es.pickle_codec(Card))]}, {"found": "pickled"}),
        (["card", "s"], {"states": STATE, "written_at": datetime.datetime(2026, 1, 1)}, {"option": "written_at"}),
    ],
)
def test_what_does_not_go_together_is_refused(columns: list[str], options: dict[str, Any], place: errors.Place) -> None:
    """Catches: a column that is silently left out; an error after hours of writing."""
    storage = MemoryStorage()
    table = pa.table({name: ["ann"] if name == "card" else [1] for name in columns})
    with raising(es.EmberstateError, **place):
        boot(storage, table, **options)
    assert storage.list() == []


@pytest.mark.parametrize("function", [Broadcasting(), Two()])
def test_functions_of_every_kind(tmp_path: Path, function: Any) -> None:
    """Catches: a function with two inputs whose states cannot be asked for."""
    boot(tmp_path, pa.table({"card": ["ann"], "s": [1]}), function)
    assert es.read_state(tmp_path, "s", savepoint="boot").num_rows == 1


def test_an_empty_table_and_a_name_that_is_taken(tmp_path: Path) -> None:
    """Catches: a savepoint of nothing that no job can start from; one that is overwritten."""
    table = pa.table({"card": pa.array([], pa.string()), "most": pa.array([], pa.float64())})
    boot(tmp_path / "boot", table)
    assert savepoint_names(LocalStorage(tmp_path / "boot")) == ["boot"]
    with pytest.raises(StorageExistsError):
        boot(tmp_path / "boot", table)
    backend = started(tmp_path / "job", tmp_path / "boot")
    with Harness(Cards(), schema=SCHEMA, key="card", output=OUTPUT, name="cards", state_backend=backend) as harness:
        (row,) = harness.process(("ann", "cafe", 4.0))
        assert row.n == 1
