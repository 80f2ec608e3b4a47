"""The RocksDB backend does what every backend must; where it differs from the heap, it differs as is said here."""

from __future__ import annotations

import pytest

from emberstate.errors import StateTypeError
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlUpdate
from tests.raising import raising
from tests.state.conformance_backend import (
    DeclarationConformance,
    KeyConformance,
    MergeConformance,
    NamespaceConformance,
    PointInTimeConformance,
)
from tests.state.conformance_clean_up import CleanUpConformance
from tests.state.conformance_owner import OwnerConformance
from tests.state.conformance_states import (
    FoldingStateConformance,
    ListStateConformance,
    MapStateConformance,
    ValueStateConformance,
    opened,
)
from tests.state.conformance_timers import TimerConformance
from tests.state.conformance_ttl import ON_READ, TEN, TtlConformance, ten_seconds
from tests.state.support import BackendFactory, Profile


class TestValueState(ValueStateConformance):
    """Value state."""

    def test_what_is_handed_out_or_in_counts(self, make_backend: BackendFactory) -> None:
        """Catches a value that is shared with the caller: here, unlike on the heap, only what is written counts."""
        backend, state = opened(make_backend, ValueStateDescriptor("v", Profile))
        mine = Profile(1)
        state.update(mine)
        mine.visits = 2
        assert state.value() == Profile(1)
        read = state.value()
        read.tags.append("new")
        assert state.value() == Profile(1)
        with backend.snapshot() as snapshot:
            state.value().visits = 3
            assert backend.changes(snapshot) == []
            state.update(read)
            assert state.value() == Profile(1, ["new"])
            assert len(backend.changes(snapshot)) == 1

    def test_a_default_that_is_changed_counts(self, make_backend: BackendFactory) -> None:
        """Catches a default that is written because it was read: here, unlike on the heap, only writing counts."""
        backend, state = opened(make_backend, ValueStateDescriptor("v", list[int], default=[1]))
        with backend.snapshot() as snapshot:
            read = state.value()
            read.append(2)
            assert state.value() == [1]
            assert backend.changes(snapshot) == []
            state.update(read)
            assert state.value() == [1, 2]

    def test_a_wrong_type_deep_inside_is_refused_at_once(self, make_backend: BackendFactory) -> None:
        """Catches a value that only a checkpoint would refuse, on the heap's way: here it is encoded on update."""
        _, state = opened(make_backend, ValueStateDescriptor("v", Profile))
        state.update(Profile(1))
        with raising(StateTypeError, state="v", key="ann", field="$.tags[0]"):
            state.update(Profile(1, [7]))  # type: ignore[list-item]
        assert state.value() == Profile(1)


class TestListState(ListStateConformance):
    """List state."""


class TestMapState(MapStateConformance):
    """Map state."""

    def test_values_handed_out_by_key_count_and_by_iteration_do_not(
        self, make_backend: BackendFactory, size: int
    ) -> None:
        """Catches a user value that is shared with the caller: here, unlike on the heap, only a put counts."""
        _, state = opened(make_backend, MapStateDescriptor("m", int, list[int]))
        for number in range(size):
            state[number] = [number]
        state[1].append(5)
        state.get(2).append(6)
        for value in state.values():
            value.append(99)
        assert dict(state.items()) == {number: [number] for number in range(size)}

    def test_iteration_is_in_the_order_of_the_user_keys_bytes(self, make_backend: BackendFactory) -> None:
        """Catches an order that depends on the history of a map: here, unlike on the heap, it is always the same."""
        descriptor = MapStateDescriptor("m", str, int)
        orders = []
        for names in (["b", "a", "cc", "c"], ["c", "b", "cc", "x", "a"]):
            _, state = opened(make_backend, descriptor)
            for name in names:
                state[name] = 1
            state.remove("x")
            orders.append(list(state))
        encoded = sorted(["a", "b", "c", "cc"], key=descriptor.key_codec.encode)
        assert orders == [encoded, encoded]


class TestFoldingStates(FoldingStateConformance):
    """Reducing and aggregating state."""


class TestKeys(KeyConformance):
    """The current key."""


class TestOwner(OwnerConformance):
    """The owner thread."""


class TestNamespaces(NamespaceConformance):
    """Namespaces."""


class TestMerging(MergeConformance):
    """Merging namespaces."""


class TestDeclarations(DeclarationConformance):
    """Declaring states."""


class TestPointsInTime(PointInTimeConformance):
    """Snapshots, changes and roll-backs."""


class TestTtl(TtlConformance):
    """Time to live."""

    def test_a_changed_value_keeps_its_stamp(self, make_backend: BackendFactory) -> None:
        """Catches a read that is taken for a write: what was read and changed is the caller's own."""
        backend, state = self.opened(make_backend, ValueStateDescriptor("v", list[int], ttl=ten_seconds()))
        state.update([1])
        with backend.snapshot() as snapshot:
            backend.ttl_clock.processing_time = TEN - 1
            state.value().append(2)
            assert state.value() == [1]
            assert backend.changes(snapshot) == []
        backend.ttl_clock.processing_time = TEN
        assert state.value() is None

    @pytest.mark.parametrize("update", TtlUpdate)
    def test_what_a_list_read_hands_out_is_a_copy(self, make_backend: BackendFactory, update: TtlUpdate) -> None:
        """Catches elements that are shared with whoever read them or handed them in."""
        descriptor = ListStateDescriptor("l", list[int], ttl=ten_seconds(update=update))
        backend, state = self.opened(make_backend, descriptor)
        state.add([0])
        backend.ttl_clock.processing_time = 1
        mine = [1]
        state.add(mine)
        backend.ttl_clock.processing_time = TEN
        state.get()[-1].append(99)
        mine.append(98)
        assert state.get()[-1] == [1]

    def test_values_renewed_by_iteration_are_not_the_readers(self, make_backend: BackendFactory) -> None:
        """Catches an iteration that stores what it hands out, or what was handed in before."""
        descriptor = MapStateDescriptor("m", int, list[int], ttl=ten_seconds(update=ON_READ))
        backend, state = self.opened(make_backend, descriptor)
        mine = [1]
        state[1] = mine
        backend.ttl_clock.processing_time = 1
        mine.append(98)
        for value in state.values():
            value.append(99)
        assert state[1] == [1]


class TestCleanUp(CleanUpConformance):
    """Cleaning up what has expired."""


class TestTimers(TimerConformance):
    """Timers."""
