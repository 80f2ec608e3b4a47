"""Keys as bytes: what belongs together is together, and timers fire in the heap's order for keys of every type."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.rocksdb.ordered_keys import OrderedKeys, ordered_bytes, ordered_int
from emberstate.rocksdb.raw_keys import entry_of, entry_prefix, key_part, sized, split, successor, table_prefix, unsized
from emberstate.rocksdb.timer_queue import HEADS
from tests.effort import examples
from tests.rocksdb.conftest import LIMIT
from tests.state.support import BackendFactory

PARTS = st.binary(max_size=6) | st.binary(min_size=250, max_size=260)
RAW = st.tuples(st.integers(1, 3), st.integers(0, 2), PARTS, PARTS, PARTS)


def raw_of(table: int, group: int, key: bytes, namespace: bytes, rest: bytes) -> bytes:
    """A raw key."""
    return entry_prefix(table_prefix(table), key_part(group, key), sized(namespace)) + rest


@given(st.lists(RAW, min_size=2, max_size=20))
def test_raw_keys_keep_entries_and_key_groups_together(parts: list[Any]) -> None:
    """Catches: two entries that look like one, pairs of others between those of an entry, groups out of order."""
    raws = {raw_of(*part): part for part in parts}
    assert len(raws) == len(set(parts))
    for raw, part in raws.items():
        assert split(raw) == part[1:]
        entry = entry_of(raw)
        within = {other for other in raws if other.startswith(entry)}
        assert {raws[other][:4] for other in within} == {part[:4]}
        assert within == {other for other in raws if entry <= other < successor(entry)}
        assert unsized(sized(part[2]) + part[4]) == (part[2], part[4])
    assert [raws[raw][:2] for raw in sorted(raws)] == sorted(part[:2] for part in raws.values())


@given(st.binary(max_size=4), st.binary(max_size=4), st.binary(max_size=2), st.binary(max_size=2))
def test_ordered_bytes_end_by_themselves(one: bytes, other: bytes, after: bytes, behind: bytes) -> None:
    """Catches: what follows a key deciding the order of keys."""
    assert ((ordered_bytes(one) + after) < (ordered_bytes(other) + behind)) == ((one, after) < (other, behind))


SINGLE: dict[str, st.SearchStrategy[Any]] = {
    "bigint": st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    "string": st.text(max_size=3),
    "binary": st.binary(max_size=3),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(10,2)": st.decimals(-99999999, 99999999, places=2, allow_nan=False),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
}


@pytest.mark.parametrize("type_name", SINGLE)
def test_the_order_of_keys_is_the_order_of_their_bytes(type_name: str) -> None:
    """Catches: a type of key by which timers fire in another order than on the heap."""
    single = KeySchema([type_name])
    paired = KeySchema([type_name, "bigint"])

    @given(SINGLE[type_name], SINGLE[type_name], st.integers(-1, 1), st.integers(-1, 1))
    def check(one: Any, other: Any, first: int, second: int) -> None:
        encode = OrderedKeys(single).encode
        one, other = single.normalise(one), single.normalise(other)
        assert (encode(one) < encode(other)) == (one < other)
        assert (encode(one) == encode(other)) == (one == other)
        encode = OrderedKeys(paired).encode
        assert (encode((one, first)) < encode((other, second))) == ((one, first) < (other, second))

    check()


def test_every_key_type_is_stored_and_listed(make_backend: BackendFactory) -> None:
    """Catches: a key type that cannot be written to RocksDB or read back."""
    key_type = (str, int, bytes, bool, float, date, datetime, "decimal(10,2)")
    key = ("a", 1, b"\x00", True, 1.5, date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.50"))
    backend = make_backend(key_type)
    queue = backend.get_timer_queue("t")
    backend.set_current_key(key)
    queue.register(1, "x")
    assert queue.poll(1).key == key
    assert backend.current_key == key


class Timers:
    """A queue of each backend, driven alike."""

    def __init__(self, directory: str) -> None:
        schema = KeySchema.from_python(int)
        self.backends: list[Any] = [
            HeapKeyedStateBackend(schema, max_parallelism=4),
            RocksDBKeyedStateBackend(schema, directory, max_parallelism=4, memory_limit=LIMIT),
        ]
        self.queues = [backend.get_timer_queue("t", namespace_type=int) for backend in self.backends]

    def do(self, key: int, what: str, *arguments: Any) -> Any:
        """The same call on both; what they return, which must be the same."""
        results = []
        for backend, queue in zip(self.backends, self.queues, strict=True):
            backend.set_current_key(key)
            results.append(getattr(queue, what)(*arguments))
        assert results[0] == results[1]
        return results[0]


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["register", "register", "delete", "poll", "roll back"]),
        st.integers(-2, 400),
        st.integers(-2, 2),
    ),
    max_size=60,
)


@settings(max_examples=examples(30), deadline=None)
@given(STEPS, st.integers(0, 3 * HEADS))
def test_timers_fire_as_on_the_heap(steps: list[Any], many: int) -> None:
    """Catches: what is read ahead that misses a timer registered, deleted, fired or rolled back meanwhile."""
    with tempfile.TemporaryDirectory() as directory:
        timers = Timers(directory)
        for number in range(many):
            timers.do(number % 6, "register", number * 7 % 400, "n", 0)
        snapshots = [backend.snapshot() for backend in timers.backends]
        for key, what, time, namespace in steps:
            if what == "roll back":
                for backend, snapshot in zip(timers.backends, snapshots, strict=True):
                    backend.roll_back(snapshot)
            elif what == "poll":
                timers.do(key, "poll", time)
            else:
                timers.do(key, what, time, "n", namespace)
        timers.backends[1].check_invariants()
        while timers.do(0, "poll", 1000) is not None:
            pass
        for snapshot in snapshots:
            snapshot.release()
        timers.backends[1].close()


def test_ordered_int_has_room_for_all() -> None:
    """Catches: a boundary that wraps around."""
    assert ordered_int(-(2**63)) == bytes(8)
    assert ordered_int(2**63 - 1) == b"\xff" * 8
