"""Time to live in state files: a base leaves out what has expired, and a restore judges by what is declared now."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig, TtlTime, TtlVisibility

pytestmark = pytest.mark.reliability(22)

TEN = 10_000_000
DEFAULT = TtlConfig("10 seconds")


class Expiring:
    """A backend with a value, a list and a map that expire."""

    def __init__(self, ttl: TtlConfig | None = DEFAULT, now: int = 0) -> None:
        self.backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
        self.backend.ttl_clock.processing_time = self.backend.ttl_clock.event_time = now
        self.value = self.backend.get_partitioned_state(ValueStateDescriptor("v", int, ttl=ttl))
        self.elements = self.backend.get_partitioned_state(ListStateDescriptor("l", int, ttl=ttl))
        self.pairs = self.backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ttl))

    def at(self, now: int) -> None:
        """Set both times."""
        self.backend.ttl_clock.processing_time = self.backend.ttl_clock.event_time = now

    def write(self, key: str, number: int) -> None:
        """Write to all three."""
        self.backend.set_current_key(key)
        self.value.update(number)
        self.elements.add(number)
        self.pairs[number] = number

    def read(self, key: str) -> tuple[Any, ...]:
        """Read all three."""
        self.backend.set_current_key(key)
        return self.value.value(), self.elements.get(), dict(self.pairs)

    def base(self) -> bytes:
        """A base of what there is now."""
        with self.backend.snapshot() as snapshot:
            return b"".join(BaseWriter(self.backend, snapshot))

    def restored(self, *files: bytes) -> Expiring:
        """The same, filled from files."""
        restore([StateFileReader.of_bytes(data) for data in files], self.backend)
        return self


@pytest.mark.parametrize("time", TtlTime)
def test_a_base_leaves_out_what_had_expired_when_its_snapshot_was_taken(time: TtlTime) -> None:
    """Catches bases that carry expired state along for ever, that judge by a later time than the snapshot's, or
    that change the live state.
    """
    live = Expiring(TtlConfig("10 seconds", time=time))
    live.write("ann", 1)
    live.at(5)
    live.write("ann", 2)
    live.write("bob", 3)
    held = live.backend.number_of_entries()
    for now, rows in ((TEN - 1, 8), (TEN, 6), (TEN + 4, 6), (TEN + 5, 0)):
        live.at(now)
        with live.backend.snapshot() as snapshot:
            live.at(100 * TEN)
            writer = BaseWriter(live.backend, snapshot)
            data = b"".join(writer)
        assert writer.counts().rows == rows
        restored = Expiring(TtlConfig("10 seconds", time=time), now=0).restored(data)
        assert restored.read("bob") == ((3, [3], {3: 3}) if rows else (None, [], {}))
        assert restored.elements.is_empty() is (rows == 0)
    assert live.backend.number_of_entries() == held
    live.at(0)
    assert live.read("ann") == (2, [1, 2], {1: 1, 2: 2})


def test_what_a_read_could_still_show_is_stored() -> None:
    """Catches a restored state that answers otherwise than the live one: a retry would give other results."""
    ttl = TtlConfig("10 seconds", visibility=TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    live = Expiring(ttl)
    live.write("ann", 1)
    live.at(TEN)
    restored = Expiring(ttl, now=TEN).restored(live.base())
    assert restored.read("ann") == live.read("ann") == (1, [1], {1: 1})


def test_a_time_that_is_not_known_leaves_everything_in() -> None:
    """Catches a base that fails, or is empty, before the first watermark."""
    live = Expiring(TtlConfig("10 seconds", time=TtlTime.EVENT))
    live.write("ann", 1)
    live.backend.ttl_clock.event_time = None
    data = live.base()
    assert Expiring(TtlConfig("10 seconds", time=TtlTime.EVENT)).restored(data).read("ann") == (1, [1], {1: 1})


@pytest.mark.parametrize("size", [2, 30])
def test_a_delta_may_remove_the_last_user_key_that_a_base_has(size: int) -> None:
    """Catches a restore that calls it damage when all that a base has of a map goes: the live map had more."""
    live = Expiring()
    live.write("ann", 0)
    live.at(5)
    live.backend.set_current_key("ann")
    live.pairs.put_all({number: number for number in range(1, size)})
    live.at(TEN)
    base = live.base()
    with live.backend.snapshot() as snapshot:
        for number in range(1, size):
            live.pairs.remove(number)
        delta = write_delta(live.backend, snapshot).data
    assert len(list(live.backend.get_keys("m"))) == 1  # user key 0, expired
    restored = Expiring(now=TEN).restored(base, delta)
    assert list(restored.backend.get_keys("m")) == []
    restored.backend.check_invariants()


@pytest.mark.parametrize("seed", range(6))
def test_a_base_and_the_deltas_after_it_give_what_the_live_state_gives(seed: int) -> None:
    """Catches a delta that cannot be applied, or gives something else, because the base has left out what the live
    state still had: a user key removed that is not there, the last one of a map, a list that begins later.
    """
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    live = Expiring()
    now = 0
    files: list[bytes] = []
    removed = 0
    for number in range(60):
        now += chance.randrange(TEN // 3)
        live.at(now)
        if number % 7 == 0:
            files = [live.base()]
        with live.backend.snapshot() as snapshot:
            for _ in range(chance.randrange(12)):
                key = f"k{chance.randrange(8)}"
                for _ in range(chance.choice([1, 1, 3, 20])):
                    live.write(key, chance.randrange(25))
                if chance.random() < 0.5:
                    live.backend.set_current_key(f"k{chance.randrange(8)}")
                    for user_key in list(live.pairs)[: chance.randrange(20)]:
                        del live.pairs[user_key]
                if chance.random() < 0.3:
                    live.read(f"k{chance.randrange(8)}")
            removed += live.backend.clean_up(chance.randrange(1, 100))
            files.append(write_delta(live.backend, snapshot).data)
        restored = Expiring(now=now).restored(*files)
        restored.backend.check_invariants()
        with live.backend.snapshot() as snapshot:
            for key in map("k{}".format, range(8)):
                assert restored.read(key) == live.read(key)
            live.backend.roll_back(snapshot)  # what a read removes stays as it was
    assert removed > 100


@pytest.mark.parametrize(
    ("declared", "last", "gone"),
    [
        (TtlConfig("4 seconds"), 4_000_000 - 1, 4_000_000),
        (TtlConfig("10 seconds"), TEN - 1, TEN),
        (TtlConfig(timedelta(days=1)), 86_400_000_000 - 1, 86_400_000_000),
        (None, 2**62, None),
    ],
    ids=["shortened", "kept", "lengthened", "removed"],
)
def test_a_time_to_live_changed_on_restore_counts_from_the_stored_stamps(
    declared: TtlConfig | None, last: int, gone: int | None
) -> None:
    """Catches stamps lost on restore, the stored duration taken for the declared one, and a boundary off by one."""
    live = Expiring()
    live.write("ann", 1)
    with live.backend.snapshot() as snapshot:
        live.at(1)
        live.write("bob", 2)
        delta = write_delta(live.backend, snapshot).data
    live.at(0)
    files = (live.base(), delta)
    for when, answer in ((last, (1, [1], {1: 1})), (gone, (None, [], {}))):
        if when is None:
            continue
        restored = Expiring(declared, now=when).restored(files[0])
        assert restored.read("ann") == answer
    restored = Expiring(declared, now=last + 1).restored(Expiring(now=0).base(), delta)
    assert restored.read("bob") == (2, [2], {2: 2})


def test_a_time_to_live_switched_on_counts_from_the_restore() -> None:
    """Catches old state that is expired the moment it gets a time to live, or that never expires."""
    live = Expiring(None)
    live.write("ann", 1)
    data = live.base()
    restored = Expiring(now=77).restored(data)
    restored.at(77 + TEN - 1)
    assert restored.read("ann") == (1, [1], {1: 1})
    restored.at(77 + TEN)
    assert restored.backend.clean_up(100) == 3
    assert restored.read("ann") == (None, [], {})
