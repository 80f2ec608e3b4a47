"""Scans: planned once, read in parts anywhere; what is read, what is not, and what is gone meanwhile."""

from __future__ import annotations

import datetime
import decimal
import pickle
import random
from collections.abc import Callable
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import emberstate as es
from emberstate.checkpoint.commit.savepoint import delete_savepoint
from emberstate.checkpoint.read.listing import list_states
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.scan import plan_scan
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.codec.key_text import key_of_json
from emberstate.errors import (
    CheckpointCollectedError,
    RestoreRefusedError,
    StateDeclarationError,
    StateTypeError,
)
from emberstate.keygroups import KeySchema
from emberstate.runtime.bootstrap.bootstrap import bootstrap_savepoint
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.config import TtlConfig
from emberstate.storage.local import LocalStorage
from tests.checkpoint.counting import small_job
from tests.checkpoint.driver import Job
from tests.checkpoint.read.test_checkpoint_reader import ALL
from tests.checkpoint.states import put, states_job
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising


def committed(job: Job, *work: tuple[Any, Callable[[KeyedStateBackend], None]]) -> int:
    job.feed(*work)
    return job.coordinator.latest.number


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


# -- what is read -----------------------------------------------------------------------------------------------


def test_parts_of_a_scan_that_travelled_are_the_table() -> None:
    """Catches: parts with other columns than the plan, because they saw other values: zones, digits."""
    decimals = ValueStateDescriptor("decimals", decimal.Decimal)
    times = ListStateDescriptor("times", datetime.datetime)
    storage = SharedMemory()
    job = states_job(storage, decimals, times)
    zoned, naive = datetime.datetime(2026, 1, 1, tzinfo=UTC), datetime.datetime(2026, 1, 1)
    for number in range(40):
        job.feed(
            (f"k{number}", put(decimals, decimal.Decimal(10) ** (number % 20 - 10))),
            (f"k{number}", put(times, [zoned if number % 3 else naive])),
        )
    for state in ("decimals", "times"):
        whole = CheckpointReader.open(storage).to_arrow("op", state)
        scan = pickle.loads(pickle.dumps(plan_scan(storage, state)))
        assert scan.schema == whole.schema
        for parts in (1, 3, 16):
            found = [
                batch for part in range(parts) for batch in scan.batches(storage, scan.groups_of_part(part, parts))
            ]
            assert all(batch.schema == scan.schema for batch in found)
            assert pa.Table.from_batches(found) == whole
        assert es.read_state(storage, state) == whole
    assert plan_scan(storage, "times").schema.field("value").type == pa.string()


@pytest.mark.parametrize("state", [state.name for state in ALL])
def test_every_kind_of_state_and_one_key_of_it(state: str) -> None:
    """Catches: a filter by key that lets others through or loses some; a kind that cannot be read so."""
    storage = SharedMemory()
    job = states_job(storage, *ALL)
    for name in ("ann", "bob", "eve"):
        job.feed(
            (name, put(ALL[0], name)),
            (name, put(ALL[1], [1, 2, 3])),
            (name, put(ALL[2], {"a": 1, "b": None})),
            (name, put(ALL[3], 5)),
            (name, put(ALL[4], 2.5)),
        )
    whole = es.read_state(storage, state)
    assert whole == CheckpointReader.open(storage).to_arrow("op", state)
    ann = es.read_state(storage, state, operator="op", key="ann")
    assert rows(ann) == [row for row in rows(whole) if row["key"] == "ann"] != []
    group = job.work.keys.key_group("ann", 16)
    others = [number for number in range(16) if number != group]
    assert es.read_state(storage, state, key="ann", key_groups=others).num_rows == 0
    assert es.read_state(storage, state, key="nobody").schema == whole.schema
    assert rows(es.read_state(storage, state, key_groups=[group])) == [
        row for row in rows(whole) if job.work.keys.key_group(row["key"], 16) == group
    ]


def test_timers_are_read_too() -> None:
    """Catches: a timer queue that is taken for a state."""
    storage = SharedMemory()
    job = states_job(storage, ALL[0])

    def register(backend: KeyedStateBackend) -> None:
        backend.get_timer_queue("event").register(7, "t")

    job.feed(("ann", register))
    assert es.read_state(storage, "timers/event").to_pylist() == [
        {"key": "ann", "time": datetime.datetime(1970, 1, 1, microsecond=7, tzinfo=UTC), "name": "t", "namespace": ""}
    ]


def test_only_needed_key_groups_are_read(tmp_path: Path) -> None:
    """Catches: the whole state read for one key."""
    random_bytes = random.Random(7).randbytes  # which zstd cannot make smaller
    table = pa.table({"card": range(2000), "data": [random_bytes(1000) for _ in range(2000)]})
    states = [ValueStateDescriptor("data", bytes)]
    bootstrap_savepoint(table, tmp_path, "s", job="j", operator="o", states=states, key="card")
    sizes = {}
    for name, options in {"all": {}, "key": {"key": 7}, "groups": {"key_groups": [3, 70]}}.items():
        storage = LocalStorage(tmp_path)
        found = es.read_state(storage, "data", savepoint="s", **options)  # type: ignore[arg-type]
        sizes[name] = storage.statistics().bytes_read
        assert found.num_rows == 1 if name == "key" else found.num_rows > 1
    assert sizes["key"] < sizes["all"] / 4
    assert sizes["groups"] < sizes["all"] / 4


def test_expiry_is_stamp_and_time_to_live() -> None:
    """Catches: an expiry that is off, or wraps around for what lives for ever."""
    storage = SharedMemory()
    hour = MapStateDescriptor("hour", str, int, ttl=TtlConfig(timedelta(hours=1)))
    ever = ValueStateDescriptor("ever", int, ttl=TtlConfig(timedelta(days=10_000 * 365)))
    job = states_job(storage, hour, ever)
    job.feed(("ann", put(hour, {"a": 1})), ("ann", put(ever, 1)))
    written = datetime.datetime(1970, 1, 1, second=1, tzinfo=UTC)
    (row,) = es.read_state(storage, "hour").to_pylist()
    assert (row["stamp"], row["expires"]) == (written, written + timedelta(hours=1))
    (row,) = es.read_state(storage, "ever").to_pylist()
    assert (row["stamp"], row["expires"]) == (written, None)


def test_changes_between_two_checkpoints() -> None:
    """Catches: changes of other checkpoints, keys or key groups than asked for."""
    storage = SharedMemory()
    job = states_job(storage, ALL[0], ALL[2], retained=50)
    job.feed(("ann", put(ALL[0], "a")), ("eve", put(ALL[0], "b")))
    assert job.work.keys.key_group("ann", 16) != job.work.keys.key_group("eve", 16)
    first = job.coordinator.latest.number
    job.feed(("ann", put(ALL[0], "c")))
    second = job.coordinator.latest.number
    job.feed(("eve", put(ALL[0], "d")))

    def changed(since: int, **options: Any) -> list[tuple[str, str, str]]:
        found = es.read_changes(storage, "value", since, **options).to_pylist()
        return sorted((row["key"], row["old"], row["new"]) for row in found)

    assert changed(first) == [("ann", "a", "c"), ("eve", "b", "d")]
    assert changed(first, checkpoint=second) == [("ann", "a", "c")]
    assert changed(second) == [("eve", "b", "d")]
    assert changed(first, key="eve") == [("eve", "b", "d")]
    assert changed(first, key="nobody") == []
    assert changed(first, key_groups=[job.work.keys.key_group("ann", 16)]) == [("ann", "a", "c")]
    scan = pickle.loads(pickle.dumps(plan_scan(storage, "value", since=first)))
    parts = [batch for part in range(4) for batch in scan.batches(storage, scan.groups_of_part(part, 4))]
    assert pa.Table.from_batches(parts, scan.schema) == scan.to_arrow(storage)


def test_the_listing_has_states_timers_and_types() -> None:
    """Catches: a state that nobody would find, or whose types are not said."""
    storage = SharedMemory()
    expiring = MapStateDescriptor("ttl", str, int, ttl=TtlConfig(timedelta(hours=1)))
    job = states_job(storage, *ALL, expiring, key=(str, int))
    job.feed((("ann", 7), put(ALL[0], "a")))
    with CheckpointReader.open(storage) as reader:
        table = list_states(reader)
    found = {row["state"]: row for row in table.to_pylist()}
    assert sorted(found) == ["list", "map", "mean", "reduced", "timers/event", "ttl", "value"]
    assert found["ttl"] == {
        "operator": "op", "state": "ttl", "kind": "map", "key_schema": ["string", "bigint"], "max_parallelism": 16,
        "namespace_type": "str", "user_key_type": "str", "value_type": "int", "codec": "msgspec",
        "ttl": timedelta(hours=1), "ttl_time": "processing",
    }  # fmt: skip
    assert found["mean"]["value_type"] == "tuple[float, int]"
    assert found["timers/event"]["kind"] == "timers"


# -- what is refused --------------------------------------------------------------------------------------------


def test_what_is_not_there_is_said() -> None:
    """Catches: an error that does not say what there is."""
    storage = SharedMemory()
    with raising(CheckpointCollectedError, "memory://"):
        plan_scan(storage, "value")
    job = states_job(storage, *ALL)
    job.feed(("ann", put(ALL[0], "a")))
    with raising(StateDeclarationError, r"\['op'\]", operator="po"):
        plan_scan(storage, "value", operator="po")
    with raising(StateDeclarationError, r"\['list', 'map'", state="valu"):
        plan_scan(storage, "valu")
    with raising(StateDeclarationError, "0 to 15", operator="op"):
        plan_scan(storage, "value", key_groups=[3, 16])
    with raising(StateTypeError, "string", key=7):
        plan_scan(storage, "value", key=7)
    with raising(CheckpointCollectedError, checkpoint=99):
        plan_scan(storage, "value", since=99)
    with pytest.raises(RestoreRefusedError):
        other = SharedMemory()
        one = states_job(other, ALL[0], retained=50)
        one.feed(("ann", put(ALL[0], "a")))
        first = one.coordinator.latest.number
        two = states_job(
            other, ListStateDescriptor("value", int), choices=RestoreChoices(drop_states=["value"]), retained=50
        )
        two.feed(("ann", put(ListStateDescriptor("value", int), [1])))
        plan_scan(other, "value", since=first)


def test_a_checkpoint_that_goes_between_plan_and_read_is_named() -> None:
    """Catches: rows of another checkpoint than was planned, or an error about some file."""
    storage = SharedMemory()
    job = small_job(storage, retained=1)
    job.open()
    job.feed("ann")
    scan = plan_scan(storage, "count")
    job.feed("ann")
    job.feed("ann")
    with raising(CheckpointCollectedError, checkpoint=scan.checkpoint.number):
        scan.to_arrow(storage)


def test_a_savepoint_that_was_made_anew_is_not_taken_for_the_old() -> None:
    """Catches: a plan of one savepoint applied to another of its name, with other types."""
    storage = SharedMemory()
    job = small_job(storage)
    job.open()
    job.feed("ann")
    job.coordinator.savepoint("s")
    scan = plan_scan(storage, "count", savepoint="s")
    assert scan.to_arrow(storage).num_rows == 1
    delete_savepoint(storage, "s")
    job.feed("bob")
    job.coordinator.savepoint("s")
    with raising(CheckpointCollectedError, expected=scan.checkpoint.ident):
        scan.to_arrow(storage)


# -- keys as JSON -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "text", "key"),
    [
        (["bigint"], "7", 7),
        (["string"], '"7"', "7"),
        (["string"], '"\\u00e4"', "ä"),
        (["binary"], '"AP8="', b"\x00\xff"),
        (["boolean"], "true", True),
        (["double"], "7", 7.0),
        (["double"], "-0.0", 0.0),
        (["date"], '"2026-01-31"', datetime.date(2026, 1, 31)),
        (["timestamp"], '"2026-01-31T13:00:00+01:00"', datetime.datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (["timestamp_ntz"], '"2026-01-31T12:00:00"', datetime.datetime(2026, 1, 31, 12)),
        (["decimal(10,2)"], '"1.5"', decimal.Decimal("1.50")),
        (["decimal(10,2)"], "1.5", decimal.Decimal("1.50")),
        (["string", "bigint"], '["ann", 7]', ("ann", 7)),
    ],
)
def test_keys_are_read_by_their_types(types: list[str], text: str, key: Any) -> None:
    """Catches: a key that is read as another type, and never found."""
    found = key_of_json(text, KeySchema(types))
    assert found == key
    assert type(found) is type(key)
    assert str(found) == str(key)


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (["bigint"], '"7"'), (["bigint"], "7.5"), (["bigint"], "true"), (["bigint"], str(2**63)), (["bigint"], "null"),
        (["string"], "ann"), (["string"], ""), (["string"], "7"), (["binary"], '"*"'), (["double"], "NaN"),
        (["timestamp"], '"2026-01-31T12:00:00"'), (["timestamp_ntz"], '"2026-01-31T12:00:00Z"'),
        (["decimal(10,2)"], '"1.555"'), (["string", "bigint"], '"ann"'), (["string", "bigint"], '["ann"]'),
    ],
)  # fmt: skip
def test_what_is_no_key_is_refused_with_an_example(types: list[str], text: str) -> None:
    """Catches: a key that is guessed, or a bare error of a JSON parser."""
    with raising(StateDeclarationError, "such as", expected=tuple(types), found=text):
        key_of_json(text, KeySchema(types))
