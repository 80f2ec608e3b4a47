"""What every backend's states with time to live must do, to the microsecond.

A backend's tests subclass this and give a fixture `make_backend` (`support.BackendFactory`). Where Flink does
something else on purpose or by accident is said in `emberstate.state.ttl.states`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from emberstate.errors import LifecycleError
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.ttl.config import TtlConfig, TtlTime, TtlUpdate, TtlVisibility
from tests.raising import raising
from tests.state.support import MANY, BackendFactory, Collect, Mean

TEN = 10_000_000
HOUR = 3_600_000_000
RELAXED = TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
ON_READ = TtlUpdate.ON_READ_AND_WRITE


def ten_seconds(**options: Any) -> TtlConfig:
    """Ten seconds to live."""
    return TtlConfig(timedelta(seconds=10), **options)


#: For each kind: its descriptor, how the number 5 is written to it, how it is read, what a read of it gives.
KINDS: dict[str, tuple[Callable[[TtlConfig], StateDescriptor], Any, Any, Any]] = {
    "value": (
        lambda ttl: ValueStateDescriptor("s", int, ttl=ttl),
        lambda state: state.update(5),
        lambda state: state.value(),
        5,
    ),
    "list": (
        lambda ttl: ListStateDescriptor("s", int, ttl=ttl),
        lambda state: state.add(5),
        lambda state: state.get() or None,
        [5],
    ),
    "map": (
        lambda ttl: MapStateDescriptor("s", str, int, ttl=ttl),
        lambda state: state.put("a", 5),
        lambda state: state.get("a"),
        5,
    ),
    "reducing": (
        lambda ttl: ReducingStateDescriptor("s", lambda old, new: old + new, int, ttl=ttl),
        lambda state: state.add(5),
        lambda state: state.get(),
        5,
    ),
    "aggregating": (
        lambda ttl: AggregatingStateDescriptor("s", Mean(), tuple[float, int], ttl=ttl),
        lambda state: state.add(5.0),
        lambda state: state.get(),
        5.0,
    ),
}


class TtlConformance:
    """States with time to live on any backend."""

    @pytest.fixture(params=sorted(KINDS))
    def kind(self, request: pytest.FixtureRequest) -> str:
        """A kind of state."""
        kind: str = request.param
        return kind

    @staticmethod
    def opened(make_backend: BackendFactory, descriptor: StateDescriptor, now: int = 0) -> tuple[Any, Any]:
        """A backend at a time, with a current key, and a handle."""
        backend = make_backend()
        backend.set_current_key("ann")
        backend.ttl_clock.processing_time = now
        return backend, backend.get_partitioned_state(descriptor)

    @pytest.mark.reliability(22)
    def test_expires_exactly_when_its_time_is_over(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches a boundary that is off by one: expired means stamp + duration <= now."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds()), now=7)
        write(state)
        backend.ttl_clock.processing_time = 7 + TEN - 1
        assert read(state) == expected
        backend.ttl_clock.processing_time = 7 + TEN
        assert read(state) is None
        assert backend.number_of_entries() == 0  # found expired, removed
        assert list(backend.get_keys("s")) == []

    @pytest.mark.reliability(22)
    @pytest.mark.parametrize("time", TtlTime)
    def test_each_time_has_its_own_clock(self, make_backend: BackendFactory, kind: str, time: TtlTime) -> None:
        """Catches event time judged by the processing-time clock, and a clock that was never set taken
        for 0.
        """
        make, write, read, expected = KINDS[kind]
        backend = make_backend()
        backend.set_current_key("ann")
        state = backend.get_partitioned_state(make(ten_seconds(time=time)))
        clock, other = "processing_time", "event_time"
        if time is TtlTime.EVENT:
            clock, other = other, clock
        setattr(backend.ttl_clock, other, 0)
        with raising(LifecycleError, option=clock):
            write(state)
        assert backend.number_of_entries() == 0
        setattr(backend.ttl_clock, clock, -5)
        write(state)
        setattr(backend.ttl_clock, other, 10 * TEN)
        assert read(state) == expected
        setattr(backend.ttl_clock, clock, TEN - 5)
        assert read(state) is None

    @pytest.mark.reliability(22)
    @pytest.mark.parametrize("update", TtlUpdate)
    def test_a_clock_that_jumps(self, make_backend: BackendFactory, kind: str, update: TtlUpdate) -> None:
        """Catches a step back that expires what is young, or makes it older; and a value that comes back to life
        when the clock steps back behind its expiry.
        """
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(update=update)), now=HOUR)
        write(state)
        for now in (HOUR - 1, 0, -HOUR):  # NTP steps back, a microsecond or two hours
            backend.ttl_clock.processing_time = now
            assert read(state) == expected
        backend.ttl_clock.processing_time = HOUR + TEN - 1  # still by the stamp of the write
        assert read(state) == expected
        backend.ttl_clock.processing_time = 3 * HOUR
        assert read(state) is None
        backend.ttl_clock.processing_time = HOUR
        assert read(state) is None
        write(state)
        assert read(state) == expected

    @pytest.mark.reliability(22)
    def test_a_huge_time_to_live_never_expires(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches stamp + duration that overflows and is in the past."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(TtlConfig(timedelta(microseconds=2**63 - 1))), now=2**63 - 1)
        write(state)
        assert read(state) == expected
        backend.ttl_clock.processing_time = 2**63 - 1
        assert read(state) == expected

    def test_a_write_makes_young_a_read_does_not(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches reads that prolong life where only writes should."""
        make, write, read, _ = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds()))
        write(state)
        backend.ttl_clock.processing_time = TEN // 2
        assert read(state) is not None
        backend.ttl_clock.processing_time = TEN - 1
        write(state)
        backend.ttl_clock.processing_time = TEN
        assert read(state) is not None
        backend.ttl_clock.processing_time = 2 * TEN - 1
        assert read(state) is None

    def test_on_read_and_write_a_read_makes_young(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches a kind of state whose reads do not prolong life although declared so."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(update=ON_READ)))
        write(state)
        for _ in range(4):
            backend.ttl_clock.processing_time += TEN - 1
            assert read(state) == expected
        backend.ttl_clock.processing_time += TEN
        assert read(state) is None

    def test_reads_at_one_time_write_once(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches a commit that writes what was read again and again at the time it is stamped with
        already.
        """
        make, write, read, _ = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(update=ON_READ)))
        write(state)
        with backend.snapshot() as snapshot:
            read(state)
            assert backend.changes(snapshot) == []
            backend.ttl_clock.processing_time = 1
            read(state)
            assert len(backend.changes(snapshot)) == 1
        backend.ttl_clock.processing_time = 0  # a clock that steps back makes nothing older
        with backend.snapshot() as snapshot:
            read(state)
            assert backend.changes(snapshot) == []

    def test_relaxed_visibility_shows_it_once_more(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches an expired value that stays visible for good, or is gone at once."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(visibility=RELAXED)))
        write(state)
        backend.ttl_clock.processing_time = 5 * TEN
        assert read(state) == expected
        assert read(state) is None
        assert backend.number_of_entries() == 0

    @pytest.mark.parametrize("visibility", TtlVisibility)
    def test_folding_counts_the_expired_as_absent(
        self, make_backend: BackendFactory, visibility: TtlVisibility
    ) -> None:
        """Catches an expired value folded into a new one; with relaxed visibility it still counts."""
        shown = visibility is RELAXED
        for kind, expected in (("reducing", 10 if shown else 5), ("aggregating", 5.0)):
            make, write, read, _ = KINDS[kind]
            backend, state = self.opened(make_backend, make(ten_seconds(visibility=visibility)))
            write(state)
            backend.ttl_clock.processing_time = TEN
            write(state)
            assert read(state) == expected
            backend.ttl_clock.processing_time = 2 * TEN - 1
            assert read(state) == expected
            state.add(None)
            assert read(state) is None
            assert backend.number_of_entries() == 0

    def test_the_default_stands_in_for_an_expired_value(self, make_backend: BackendFactory) -> None:
        """Catches None where the declaration promises a default."""
        descriptor = ValueStateDescriptor("v", int, default=42, ttl=ten_seconds())
        backend, state = self.opened(make_backend, descriptor)
        assert state.value() == 42
        state.update(1)
        backend.ttl_clock.processing_time = TEN
        assert state.value() == 42
        assert backend.number_of_entries() == 0

    def test_a_changed_value_keeps_its_stamp(self, make_backend: BackendFactory) -> None:
        """Catches a value changed in place that is lost, or that lives longer than one that was not."""
        backend, state = self.opened(make_backend, ValueStateDescriptor("v", list[int], ttl=ten_seconds()))
        state.update([1])
        with backend.snapshot() as snapshot:
            backend.ttl_clock.processing_time = TEN - 1
            state.value().append(2)
            assert state.value() == [1, 2]
            assert len(backend.changes(snapshot)) == 1
        backend.ttl_clock.processing_time = TEN
        assert state.value() is None

    # -- lists -----------------------------------------------------------------------------------------------

    def test_list_elements_expire_one_by_one(self, make_backend: BackendFactory) -> None:
        """Catches a list that expires as a whole, and sizes that count what no read would give."""
        backend, state = self.opened(make_backend, ListStateDescriptor("l", int, ttl=ten_seconds()))
        state.add(0)
        backend.ttl_clock.processing_time = 1
        state.add_all([1, 1])
        backend.ttl_clock.processing_time = 2
        state.add(2)
        backend.ttl_clock.processing_time = TEN
        assert len(state) == 3
        assert list(state) == [1, 1, 2]
        backend.ttl_clock.processing_time = TEN + 1
        assert not state.is_empty()
        assert state.get() == [2]
        backend.ttl_clock.processing_time = TEN + 2
        assert state.is_empty()
        assert len(state) == 0
        assert state.get() == []
        assert backend.number_of_entries() == 0

    def test_a_list_with_relaxed_visibility_is_consistent(self, make_backend: BackendFactory) -> None:
        """Catches a size that disagrees with what iteration gives."""
        descriptor = ListStateDescriptor("l", int, ttl=ten_seconds(visibility=RELAXED))
        backend, state = self.opened(make_backend, descriptor)
        state.add(0)
        backend.ttl_clock.processing_time = 1
        state.add(1)
        backend.ttl_clock.processing_time = TEN
        assert len(state) == 2
        assert state.get() == [0, 1]
        assert len(state) == 1
        assert state.get() == [1]

    @pytest.mark.parametrize("update", TtlUpdate)
    def test_what_a_list_read_hands_out_is_a_copy(self, make_backend: BackendFactory, update: TtlUpdate) -> None:
        """Catches elements that are the state's own, because cleaning up or stamping anew stored what was
        read.
        """
        descriptor = ListStateDescriptor("l", list[int], ttl=ten_seconds(update=update))
        backend, state = self.opened(make_backend, descriptor)
        state.add([0])
        backend.ttl_clock.processing_time = 1
        mine = [1]
        state.add(mine)
        backend.ttl_clock.processing_time = TEN
        state.get()[-1].append(99)
        assert state.get()[-1] == [1]
        mine.append(2)  # handed in: it counts until the transaction ends
        assert state.get()[-1] == [1, 2]
        with backend.snapshot():
            mine.append(99)
            assert state.get()[-1] == [1, 2]

    # -- maps ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [3, MANY])
    def test_map_values_expire_one_by_one(self, make_backend: BackendFactory, size: int) -> None:
        """Catches a map that expires as a whole, and a size, iteration or membership that disagrees with
        reads.
        """
        backend, state = self.opened(make_backend, MapStateDescriptor("m", int, int, ttl=ten_seconds()))
        for number in range(size):
            backend.ttl_clock.processing_time = number
            state[number] = number
        for gone in range(size):
            backend.ttl_clock.processing_time = TEN + gone
            living = {number: number for number in range(gone + 1, size)}
            assert state.contains(gone) is False
            assert gone not in state
            assert state.get(gone, -1) == -1
            with pytest.raises(KeyError):
                state[gone]
            assert len(state) == len(living)
            assert state.is_empty() is not bool(living)
            assert dict(state) == dict(state.items()) == living == state
            assert set(state) == set(living)
            assert sorted(state.values()) == sorted(living.values())
        assert backend.number_of_entries() == 0
        assert list(backend.get_keys("m")) == []

    def test_none_as_user_value_expires_too(self, make_backend: BackendFactory) -> None:
        """Catches None user values that live for ever, or never."""
        backend, state = self.opened(make_backend, MapStateDescriptor("m", str, int, ttl=ten_seconds()))
        state["a"] = None
        backend.ttl_clock.processing_time = TEN - 1
        assert state.contains("a")
        assert state["a"] is None
        backend.ttl_clock.processing_time = TEN
        assert not state.contains("a")
        assert state.get("a", 5) == 5

    def test_removing_an_expired_user_key_finds_nothing(self, make_backend: BackendFactory) -> None:
        """Catches `del` and `pop` that find what a read would not."""
        backend, state = self.opened(make_backend, MapStateDescriptor("m", str, int, ttl=ten_seconds()))
        state.update(a=1, b=2, c=3)
        backend.ttl_clock.processing_time = TEN
        with pytest.raises(KeyError):
            del state["a"]
        assert state.pop("b", None) is None
        assert state.setdefault("c", 9) == 9
        assert dict(state) == {"c": 9}

    @pytest.mark.parametrize("size", [3, MANY])
    def test_a_map_with_relaxed_visibility_is_consistent(self, make_backend: BackendFactory, size: int) -> None:
        """Catches sizes that disagree with iteration, and reads during an iteration that break it."""
        descriptor = MapStateDescriptor("m", int, int, ttl=ten_seconds(visibility=RELAXED))
        backend, state = self.opened(make_backend, descriptor)
        everything = {number: number for number in range(size)}
        state.put_all(everything)
        backend.ttl_clock.processing_time = TEN
        assert len(state) == size
        assert 0 in state
        assert {key: state[key] for key in state} == everything  # each read is the last one
        assert state.is_empty()
        state.put_all(everything)
        backend.ttl_clock.processing_time = 2 * TEN
        assert dict(state) == everything
        assert backend.number_of_entries() == 0
        state[0] = 1
        backend.ttl_clock.processing_time = 3 * TEN
        del state[0]
        assert state.is_empty()

    @pytest.mark.parametrize("update", TtlUpdate)
    @pytest.mark.parametrize("size", [3, MANY])
    def test_what_is_written_during_an_iteration_stays(
        self, make_backend: BackendFactory, size: int, update: TtlUpdate
    ) -> None:
        """Catches an iteration that, when it is through, removes or overwrites what was written meanwhile."""
        descriptor = MapStateDescriptor("m", int, int, ttl=ten_seconds(update=update))
        backend, state = self.opened(make_backend, descriptor)
        state.put_all({number: number for number in range(0, size, 2)})
        backend.ttl_clock.processing_time = 1
        state.put_all({number: number for number in range(1, size, 2)})
        backend.ttl_clock.processing_time = TEN
        for _ in state.items():
            for number in range(size):
                state[number] = 1000 + number
        assert dict(state.items()) == {number: 1000 + number for number in range(size)}

    def test_values_renewed_by_iteration_are_not_the_readers(self, make_backend: BackendFactory) -> None:
        """Catches an iteration that stores what it hands out: a reader's change to a copy would count."""
        descriptor = MapStateDescriptor("m", int, list[int], ttl=ten_seconds(update=ON_READ))
        backend, state = self.opened(make_backend, descriptor)
        mine = [1]
        state[1] = mine
        backend.ttl_clock.processing_time = 1
        for value in state.values():
            value.append(99)
        assert state[1] == [1]
        mine.append(2)
        assert state[1] == [1, 2]

    def test_contains_counts_as_a_read(self, make_backend: BackendFactory) -> None:
        """Catches `in` that does not prolong life where reads do."""
        descriptor = MapStateDescriptor("m", str, int, ttl=ten_seconds(update=ON_READ))
        backend, state = self.opened(make_backend, descriptor)
        state["a"] = 1
        backend.ttl_clock.processing_time = TEN - 1
        assert "a" in state
        backend.ttl_clock.processing_time = 2 * TEN - 2
        assert state.get("a") == 1

    @pytest.mark.reliability(29)
    @pytest.mark.parametrize("visibility", TtlVisibility)
    def test_an_iteration_kept_beyond_its_key_touches_no_other(
        self, make_backend: BackendFactory, visibility: TtlVisibility
    ) -> None:
        """Catches an iterator kept across elements that renews or removes in another key's map."""
        descriptor = MapStateDescriptor("m", int, int, ttl=ten_seconds(update=ON_READ, visibility=visibility))
        backend, state = self.opened(make_backend, descriptor)
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            state.put_all({1: 1, 2: 2})
        backend.ttl_clock.processing_time = 1
        with backend.snapshot() as snapshot:
            backend.set_current_key("ann")
            walk = state.iterator()
            next(walk)
            backend.set_current_key("bob")
            with raising(LifecycleError, key="ann"):
                list(walk)
            assert {key for _, _, (key, _, _) in backend.changes(snapshot)} == {"ann"}

    # -- points in time --------------------------------------------------------------------------------------

    def test_a_roll_back_brings_back_what_expired(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches expiry, or a new stamp, that outlives the attempt that made it."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(update=ON_READ)))
        write(state)
        with backend.snapshot() as snapshot:
            for now in (TEN, TEN - 1, TEN):
                backend.ttl_clock.processing_time = now
                assert (read(state) is None) == (now == TEN)
                backend.roll_back(snapshot)
                backend.set_current_key("ann")
            backend.ttl_clock.processing_time = TEN - 1
            assert read(state) == expected

    def test_accumulators_can_be_reached_and_set(self, make_backend: BackendFactory) -> None:
        """Catches windows that get a stamp instead of an accumulator, or one that has expired."""
        backend = make_backend()
        backend.set_current_key("ann")
        backend.ttl_clock.processing_time = 0
        for descriptor in (
            AggregatingStateDescriptor("a", Collect(), list[int], ttl=ten_seconds()),
            ReducingStateDescriptor("r", lambda old, new: old + new, list[int], ttl=ten_seconds()),
        ):
            backend.ttl_clock.processing_time = 0
            internal = backend.get_internal_state(descriptor)
            assert internal.get_internal() is None
            internal.update_internal([2, 1])
            assert internal.get_internal() == [2, 1]
            assert sorted(backend.get_partitioned_state(descriptor).get()) == [1, 2]
            backend.ttl_clock.processing_time = TEN
            assert internal.get_internal() is None
            internal.update_internal([3])
            internal.update_internal(None)
            assert backend.number_of_entries() == 0
