"""What every backend's clean-up of expired state must do: all of it in the end, a little at a time, unseen.

A backend's tests subclass this and give a fixture `make_backend` (`support.BackendFactory`). A backend offers
`clean_up(budget)` and, in its statistics, `clean_up` (`TtlCleanUpStatistics`).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from emberstate.errors import StateDeclarationError
from emberstate.state.changes import ABSENT, apply_ops
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, StateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlTime
from tests.raising import raising
from tests.state.conformance_ttl import KINDS, RELAXED, TEN, ten_seconds
from tests.state.support import BackendFactory, entries_of

EVERYTHING = 10**9
#: How much more than its budget a call may look at.
SLACK = 200


@pytest.mark.reliability(22)
class CleanUpConformance:
    """Clean-up on any backend."""

    @pytest.fixture(params=sorted(KINDS))
    def kind(self, request: pytest.FixtureRequest) -> str:
        """A kind of state."""
        kind: str = request.param
        return kind

    @staticmethod
    def opened(make_backend: BackendFactory, descriptor: StateDescriptor) -> tuple[Any, Any]:
        """A backend at time 0, with a current key, and a handle."""
        backend = make_backend()
        backend.set_current_key("ann")
        backend.ttl_clock.processing_time = 0
        return backend, backend.get_partitioned_state(descriptor)

    @pytest.mark.parametrize("time", TtlTime)
    def test_removes_what_nobody_reads_exactly_when_its_time_is_over(
        self, make_backend: BackendFactory, kind: str, time: TtlTime
    ) -> None:
        """Catches state of keys that never come again growing for ever, and a clean-up a microsecond early."""
        make, write, _, _ = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(time=time)))
        kept = backend.get_partitioned_state(ValueStateDescriptor("kept", int))
        clock = f"{time.value}_time"
        setattr(backend.ttl_clock, clock, 7)
        keys = [f"k{number}" for number in range(100)]
        for key in keys:
            backend.set_current_key(key)
            write(state)
            kept.update(1)
        setattr(backend.ttl_clock, clock, 7 + TEN - 1)
        assert backend.clean_up(EVERYTHING) == 0
        assert backend.number_of_entries() == 200
        setattr(backend.ttl_clock, clock, 7 + TEN)
        assert backend.clean_up(EVERYTHING) == 100
        assert backend.current_key == keys[-1]
        assert sorted(backend.get_keys("kept")) == sorted(keys)
        assert list(backend.get_keys("s")) == []
        assert backend.clean_up(EVERYTHING) == 0
        statistics = backend.statistics().clean_up
        assert (statistics.removed, statistics.passes) == (100, 3)
        backend.check_invariants()

    @pytest.mark.parametrize("size", [4, 40, 400])
    def test_what_stays_keeps_its_stamp(self, make_backend: BackendFactory, size: int) -> None:
        """Catches lists and maps that are cleaned as a whole or not at all, and survivors made young by it."""
        backend, elements = self.opened(make_backend, ListStateDescriptor("l", int, ttl=ten_seconds()))
        pairs = backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ten_seconds()))
        for number in range(size):
            backend.ttl_clock.processing_time = 0 if number < size // 2 else 5
            elements.add(number)
            pairs[number] = number
        backend.ttl_clock.processing_time = TEN
        groups = range(backend.context.max_parallelism)
        written = {}
        with backend.snapshot() as snapshot:
            assert backend.clean_up(EVERYTHING) == 2 * (size // 2)
            for name, _, (key, namespace, ops) in backend.changes(snapshot):
                written[name] = apply_ops(entries_of(snapshot, name, iter(groups))[key, namespace], ops)
        with backend.snapshot() as snapshot:
            for name in ("l", "m"):
                assert list(entries_of(snapshot, name, iter(groups)).values()) == [written[name]]
            [left] = entries_of(snapshot, "l", iter(groups)).values()
            assert [(element.value, element.stamp) for element in left] == [(n, 5) for n in range(size // 2, size)]
            [left] = entries_of(snapshot, "m", iter(groups)).values()
            assert {key: (value.value, value.stamp) for key, value in left.items()} == {
                number: (number, 5) for number in range(size // 2, size)
            }
        backend.ttl_clock.processing_time = TEN + 4
        assert backend.clean_up(EVERYTHING) == 0
        backend.ttl_clock.processing_time = TEN + 5
        assert backend.clean_up(EVERYTHING) == size
        assert backend.number_of_entries() == 0

    def test_a_call_looks_at_no_more_than_its_budget(self, make_backend: BackendFactory) -> None:
        """Catches a pause that grows with the state, or with the size of one key's map or list."""
        backend, value = self.opened(make_backend, ValueStateDescriptor("v", int, ttl=ten_seconds()))
        elements = backend.get_partitioned_state(ListStateDescriptor("l", int, ttl=ten_seconds()))
        pairs = backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ten_seconds()))
        size = 3_000
        for number in range(size):
            backend.set_current_key(f"k{number}")
            value.update(number)
        elements.add_all(range(size))
        pairs.put_all({number: number for number in range(size)})
        backend.ttl_clock.processing_time = TEN
        calls, before = 0, backend.statistics().clean_up
        while backend.number_of_entries():
            removed = backend.clean_up(50)
            after = backend.statistics().clean_up
            assert after.looked_at - before.looked_at <= 50 + SLACK
            assert after.removed - before.removed == removed
            before = after
            calls += 1
            assert calls < 10 * size, "it never ends"
        assert backend.statistics().clean_up.removed == 3 * size
        backend.check_invariants()

    def test_a_commit_writes_what_was_removed_and_a_roll_back_brings_it_back(
        self, make_backend: BackendFactory, kind: str
    ) -> None:
        """Catches removals beside the books: a restored backend would have what this one has not, or the other
        way round after a failed attempt.
        """
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds()))
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            backend.ttl_clock.processing_time = 0 if key == "ann" else 1
            write(state)
        groups = range(backend.context.max_parallelism)
        with backend.snapshot() as snapshot:
            old = entries_of(snapshot, "s", iter(groups))
            for _ in range(3):
                backend.ttl_clock.processing_time = TEN
                assert backend.clean_up(EVERYTHING) == 1
                [(name, _, (key, namespace, ops))] = backend.changes(snapshot)
                assert (name, key) == ("s", "ann")
                assert apply_ops(old[key, namespace], ops) is ABSENT
                backend.roll_back(snapshot)
                assert backend.changes(snapshot) == []
            backend.ttl_clock.processing_time = TEN - 1
            backend.set_current_key("ann")
            assert read(state) == expected
        backend.check_invariants()

    def test_a_time_that_is_not_known_yet_expires_nothing(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches a clean-up that fails, or empties the state, before the first watermark after a restart."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(time=TtlTime.EVENT)))
        backend.ttl_clock.event_time = 0
        write(state)
        backend.ttl_clock.processing_time = 100 * TEN
        backend.ttl_clock.event_time = None
        assert backend.clean_up(EVERYTHING) == 0
        backend.ttl_clock.event_time = TEN - 1
        assert read(state) == expected

    def test_a_clock_that_jumps(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches values cleaned because the clock went back, or kept for ever after it had been ahead."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds()))
        hour = 3_600_000_000
        backend.ttl_clock.processing_time = hour
        write(state)
        for now in (hour - 1, 0, -hour, hour + TEN - 1):  # NTP steps back, and forth again
            backend.ttl_clock.processing_time = now
            assert backend.clean_up(EVERYTHING) == 0
            assert read(state) == expected
        backend.ttl_clock.processing_time = 0
        state.clear()
        write(state)  # written after the step back: young by the clock that goes on from there
        backend.ttl_clock.processing_time = TEN
        assert backend.clean_up(EVERYTHING) == 1
        assert read(state) is None

    def test_what_is_shown_until_it_is_cleaned_up_is_gone_then(self, make_backend: BackendFactory, kind: str) -> None:
        """Catches relaxed visibility that keeps what has expired from ever being cleaned up."""
        make, write, read, expected = KINDS[kind]
        backend, state = self.opened(make_backend, make(ten_seconds(visibility=RELAXED)))
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            write(state)
        backend.ttl_clock.processing_time = TEN
        assert read(state) == expected
        assert backend.clean_up(EVERYTHING) == 1
        backend.set_current_key("ann")
        assert read(state) is None

    def test_what_was_handed_in_still_counts(self, make_backend: BackendFactory) -> None:
        """Catches a clean-up that cuts a caller's value off, or stores what the caller changes later."""
        descriptor = ListStateDescriptor("l", list[int], ttl=ten_seconds())
        backend, state = self.opened(make_backend, descriptor)
        for size in (3, 300):
            backend.ttl_clock.processing_time = 0
            state.update([[0]] * (size - 1))
            backend.ttl_clock.processing_time = 1
            state.add([7])
            backend.ttl_clock.processing_time = TEN
            assert backend.clean_up(EVERYTHING) == size - 1
            read = state.get()
            assert read == [[7]]
            read[0].append(99)
            assert state.get() == [[7]]

    def test_states_and_keys_that_come_later_are_cleaned_too(self, make_backend: BackendFactory) -> None:
        """Catches a walk that goes over what was there when it began, and never begins again."""
        backend, first = self.opened(make_backend, ValueStateDescriptor("a", int, ttl=ten_seconds()))
        first.update(1)
        backend.ttl_clock.processing_time = TEN
        assert backend.clean_up(1) <= 1
        second = backend.get_partitioned_state(MapStateDescriptor("b", int, int, ttl=ten_seconds()))
        backend.set_current_key("bob")
        first.update(1)
        second[1] = 1
        backend.ttl_clock.processing_time = 2 * TEN
        for _ in range(10_000):
            backend.clean_up(1)
        assert backend.number_of_entries() == 0

    def test_a_budget_of_nothing_is_refused(self, make_backend: BackendFactory) -> None:
        """Catches a clean-up that was switched off by mistake and says nothing."""
        backend = make_backend()
        for budget in (0, -1):
            with raising(StateDeclarationError, option="budget", found=budget):
                backend.clean_up(budget)
        assert backend.clean_up(1) == 0

    @pytest.mark.parametrize("seed", range(4))
    def test_nobody_sees_whether_it_was_cleaned_up(self, make_backend: BackendFactory, seed: int) -> None:
        """Catches a result that depends on how far the clean-up has come: a rerun would give another one.

        Two backends do the same, with failed attempts; one is cleaned up at random. Every read agrees.
        """
        print(f"seed {seed}")  # noqa: T201
        chance = random.Random(seed)
        cleaned, plain = make_backend(), make_backend()
        lists = [
            backend.get_partitioned_state(ListStateDescriptor("l", int, ttl=ten_seconds()))
            for backend in (cleaned, plain)
        ]
        pairs = [
            backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ten_seconds()))
            for backend in (cleaned, plain)
        ]
        values = [
            backend.get_partitioned_state(ValueStateDescriptor("v", int, default=-1, ttl=ten_seconds()))
            for backend in (cleaned, plain)
        ]
        now = 0
        for _ in range(40):
            now += chance.randrange(TEN // 2)
            snapshots = [backend.snapshot() for backend in (cleaned, plain)]
            for backend in (cleaned, plain):
                backend.ttl_clock.processing_time = now
            for _ in range(30):
                key, number, what = f"k{chance.randrange(30)}", chance.randrange(200), chance.randrange(5)
                for backend in (cleaned, plain):
                    backend.set_current_key(key)
                if what == 0:
                    for elements in lists:
                        elements.add_all(range(number))
                elif what == 1:
                    for pair in pairs:
                        pair.put_all({n: n for n in range(number, number + chance_size(number))})
                elif what == 2:
                    for value in values:
                        value.update(number)
                else:
                    one, other = [
                        (elements.get(), len(elements), dict(pair), len(pair), pair.get(number), value.value())
                        for elements, pair, value in zip(lists, pairs, values, strict=True)
                    ]
                    assert one == other
            cleaned.clean_up(chance.randrange(1, 2_000))
            if chance.random() < 0.3:
                for backend, snapshot in zip((cleaned, plain), snapshots, strict=True):
                    backend.roll_back(snapshot)
            for snapshot in snapshots:
                snapshot.release()
        assert cleaned.statistics().clean_up.removed > 100
        cleaned.check_invariants()


def chance_size(number: int) -> int:
    """How many user keys to put: few, mostly."""
    return 60 if number % 10 == 0 else 3
