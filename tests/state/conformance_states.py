"""What every backend's states must do: value, list, map, reducing and aggregating state.

A backend's tests subclass these classes and give a fixture `make_backend` (`support.BackendFactory`).
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, MutableMapping
from typing import Any

import numpy
import pytest

from emberstate.errors import LifecycleError, StateTypeError
from emberstate.state.changes import Op
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from tests.raising import raising
from tests.state.support import MANY, BackendFactory, Collect, Mean, Profile, extend


def opened(make_backend: BackendFactory, descriptor: Any, key: Any = "ann") -> tuple[Any, Any]:
    """A backend with a current key, and a handle on a state of it."""
    backend = make_backend()
    backend.set_current_key(key)
    return backend, backend.get_partitioned_state(descriptor)


def _add(state: Any, what: Any = 1) -> None:
    state += what


def _take(state: Any) -> None:
    state -= 1


class ValueStateConformance:
    """A value state on any backend."""

    def test_is_a_value_state(self, make_backend: BackendFactory) -> None:
        """Catches a handle that `isinstance` does not know: user code and the test harness ask that way."""
        _, state = opened(make_backend, ValueStateDescriptor("v", int))
        assert isinstance(state, ValueState)
        assert repr(state) == "<value state 'v'>"

    def test_none_rules(self, make_backend: BackendFactory) -> None:
        """Catches an absent value that is not None, and `update(None)` that stores None instead of
        clearing.
        """
        backend, state = opened(make_backend, ValueStateDescriptor("v", int))
        assert state.value() is None
        state.update(0)
        assert state.value() == 0
        assert backend.number_of_entries() == 1
        state.update(None)
        assert state.value() is None
        assert backend.number_of_entries() == 0
        assert list(backend.get_keys("v")) == []
        state.clear()
        assert backend.number_of_entries() == 0

    def test_default_is_a_fresh_copy(self, make_backend: BackendFactory) -> None:
        """Catches a shared default: one key's change to it would be every other key's default."""
        mine = [1]
        backend, state = opened(make_backend, ValueStateDescriptor("v", list[int], default=mine))
        mine.append(99)
        state.value().append(2)
        backend.set_current_key("bob")
        assert state.value() == [1]

    def test_a_default_that_is_changed_counts(self, make_backend: BackendFactory) -> None:
        """Catches `state.value().append(2)` that is lost, since what was read was no value but the default."""
        backend, state = opened(make_backend, ValueStateDescriptor("v", list[int], default=[1]))
        with backend.snapshot() as snapshot:
            state.value().append(2)
            state.value().append(3)
            assert state.value() == [1, 2, 3]
            ((_, _, change),) = backend.changes(snapshot)
            assert change == ("ann", "", ((Op.REPLACED, [1, 2, 3]),))

    def test_reading_a_default_stores_nothing(self, make_backend: BackendFactory) -> None:
        """Catches state that grows with every key that was only looked at."""
        backend, state = opened(make_backend, ValueStateDescriptor("v", list[int], default=[1]))
        with backend.snapshot() as snapshot:
            state.value()
            assert state.value() == [1]
            assert backend.changes(snapshot) == []
            assert backend.number_of_entries() == 0

    @pytest.mark.parametrize(
        ("declared", "given", "stored"),
        [
            (float, 3, 3.0),
            (float, -(2**53), -(2.0**53)),
            (float, 2**60, 2.0**60),
            (float | None, 3, 3.0),
            (float, numpy.float32(0.5), 0.5),
            (float, numpy.float64(0.1), 0.1),
            (float, numpy.int64(3), 3.0),
            (int, numpy.int16(3), 3),
            (int, numpy.uint64(3), 3),
            (bool, numpy.bool_(True), True),
            (str, numpy.str_("a"), "a"),
            (bytes, numpy.bytes_(b"a"), b"a"),
        ],
    )
    def test_a_number_that_says_the_same_is_taken(
        self, make_backend: BackendFactory, declared: Any, given: Any, stored: Any
    ) -> None:
        """Catches a stream that stops at night since a sum was a whole number, or came out of NumPy."""
        backend, value = opened(make_backend, ValueStateDescriptor("v", declared, default=given))
        assert (value.value(), type(value.value())) == (stored, type(stored))
        elements = backend.get_partitioned_state(ListStateDescriptor("l", declared))
        pairs = backend.get_partitioned_state(MapStateDescriptor("m", str, declared))
        kept = backend.get_partitioned_state(ReducingStateDescriptor("r", lambda old, new: given, declared))
        value.update(given)
        elements.add(given)
        elements.add_all([given, given])
        elements.update([*elements.get(), given])
        pairs["put"] = given
        pairs.put_all({"all": given})
        pairs.update([("updated", given)])
        kept.add(given)
        kept.add(stored)
        for found in (value.value(), *elements.get(), *pairs.values(), kept.get()):
            assert (found, type(found)) == (stored, type(stored))

    @pytest.mark.parametrize(
        ("declared", "given"),
        [
            (float, True),
            (float, numpy.bool_(True)),
            (float, 2**53 + 1),
            (float, 10**400),
            (float, "1"),
            (float, numpy.array(1.0)),
            (int, True),
            (int, 1.0),
            (int, numpy.float64(1.0)),
            (int, numpy.bool_(True)),
            (bool, 1),
            (bool, numpy.int64(1)),
            (str, numpy.bytes_(b"a")),
        ],
    )
    def test_what_does_not_say_the_same_is_refused(
        self, make_backend: BackendFactory, declared: Any, given: Any
    ) -> None:
        """Catches True stored as 1.0, and 2**53 + 1 as another number."""
        _, state = opened(make_backend, ValueStateDescriptor("v", declared))
        with raising(StateTypeError, state="v", field="$"):
            state.update(given)
        assert state.value() is None

    def test_is_not_taken_for_its_value(self, make_backend: BackendFactory) -> None:
        """Catches `if self.flag:`, always true, `self.n == 0`, always false, and `self.n += 1`, without a way out."""
        _, state = opened(make_backend, ValueStateDescriptor("v", int))
        state.update(0)
        for use in (bool, lambda it: it == 0, lambda it: it != 0, _add, _take):
            with raising(StateTypeError, r"\.value\(\) and \.update\(", state="v"):
                use(state)
        assert state == state
        assert len({state, state}) == 1

    @pytest.mark.parametrize("value", [1.0, True, "1", [1]])
    def test_wrong_type_is_refused_and_nothing_changes(self, make_backend: BackendFactory, value: Any) -> None:
        """Catches a value that would only be found out, far away, when the state is written."""
        _, state = opened(make_backend, ValueStateDescriptor("v", int))
        state.update(7)
        with raising(StateTypeError, state="v", field="$"):
            state.update(value)
        assert state.value() == 7

    def test_what_is_handed_out_or_in_counts(self, make_backend: BackendFactory) -> None:
        """Catches a backend that loses changes made to a value that was read, or handed in, without
        `update`.
        """
        backend, state = opened(make_backend, ValueStateDescriptor("v", Profile))
        mine = Profile(1)
        state.update(mine)
        mine.visits = 2
        assert state.value() == Profile(2)
        state.value().tags.append("new")
        assert state.value() == Profile(2, ["new"])
        with backend.snapshot():
            state.value().visits = 3
            assert state.value() == Profile(3, ["new"])

    def test_a_reference_kept_across_a_snapshot_reaches_nothing(self, make_backend: BackendFactory) -> None:
        """Catches state that a caller can still change after it was committed, with or without a snapshot
        before.
        """
        backend, state = opened(make_backend, ValueStateDescriptor("v", list[int]))
        handed_in = [1]
        state.update(handed_in)
        backend.snapshot().release()
        read = state.value()
        with backend.snapshot():
            handed_in.append(98)
            read.append(99)
            assert state.value() == [1]

    def test_handles_cannot_leave_their_process(self, make_backend: BackendFactory) -> None:
        """Catches a handle caught in a closure: pickled, it would drag a copy of all state along, or fail
        unexplained.
        """
        _, state = opened(make_backend, ValueStateDescriptor("v", int))
        with raising(LifecycleError, "pickled", state="v"):
            pickle.dumps(state)
        with raising(LifecycleError, "pickled", state="v"):
            copy.copy(state)


class ListStateConformance:
    """A list state on any backend."""

    def test_is_tested_by_its_length_and_not_taken_for_a_list(self, make_backend: BackendFactory) -> None:
        """Catches `if self.items:` that is true of an empty list, and `self.items == []` that is always false."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        assert not state
        state.add(1)
        assert state
        for use in (lambda it: it == [1], lambda it: _add(it, [2])):
            with raising(StateTypeError, r"\.get\(\), \.add\(", state="l"):
                use(state)

    def test_is_a_list_state(self, make_backend: BackendFactory) -> None:
        """Catches a handle that `isinstance` does not know."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        assert isinstance(state, ListState)
        assert repr(state) == "<list state 'l'>"

    def test_absent_looks_empty(self, make_backend: BackendFactory) -> None:
        """Catches None where a user iterates, and reads that create."""
        backend, state = opened(make_backend, ListStateDescriptor("l", int))
        assert state.get() == []
        assert list(state) == []
        assert len(state) == 0
        assert state.is_empty()
        assert backend.number_of_entries() == 0

    def test_appends_in_order_with_duplicates(self, make_backend: BackendFactory) -> None:
        """Catches set semantics, and an order that is not that of appending."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        state.add(3)
        state.append(1)
        state.add_all(iter([3, 2]))
        assert state.get() == list(state) == [3, 1, 3, 2]
        assert len(state) == 4
        assert not state.is_empty()

    def test_empty_creates_nothing_and_empty_update_clears(self, make_backend: BackendFactory) -> None:
        """Catches an empty list that is stored, counted and listed by `get_keys`."""
        backend, state = opened(make_backend, ListStateDescriptor("l", int))
        state.add_all([])
        state.update([])
        assert backend.number_of_entries() == 0
        assert list(backend.get_keys("l")) == []
        state.update([1])
        state.add_all([])
        assert state.get() == [1]
        state.update([])
        assert backend.number_of_entries() == 0

    @pytest.mark.parametrize("existing", [[], [1, 2]])
    @pytest.mark.parametrize(
        "write",
        [
            lambda state: state.add(None),
            lambda state: state.append(None),
            lambda state: state.add_all(None),
            lambda state: state.add_all([3, None]),
            lambda state: state.add_all([3, "4"]),
            lambda state: state.add_all("34"),
            lambda state: state.add_all(7),
            lambda state: state.update(None),
            lambda state: state.update([3, None]),
            lambda state: state.update([3, True]),
        ],
    )
    def test_refused_as_a_whole(
        self, make_backend: BackendFactory, existing: list[int], write: Callable[[Any], None]
    ) -> None:
        """Catches partial application: elements before the bad one appended, or an empty entry left
        behind.
        """
        backend, state = opened(make_backend, ListStateDescriptor("l", int))
        state.update(existing)
        with raising(StateTypeError, state="l"):
            write(state)
        assert state.get() == existing
        assert backend.number_of_entries() == bool(existing)

    def test_an_iterable_that_raises_changes_nothing(self, make_backend: BackendFactory) -> None:
        """Catches elements appended one by one while the caller's generator is still running."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        state.add(1)

        def elements() -> Any:
            yield 2
            raise ValueError("broken source")

        with pytest.raises(ValueError, match="broken source"):
            state.add_all(elements())
        assert state.get() == [1]

    def test_what_is_read_is_a_copy(self, make_backend: BackendFactory) -> None:
        """Catches a list, or elements, through which a reader would change state."""
        _, state = opened(make_backend, ListStateDescriptor("l", list[int]))
        state.add([1])
        state.get().append([2])
        state.get()[0].append(99)
        for element in state:
            element.append(98)
        assert state.get() == [[1]]

    def test_update_takes_the_elements_not_the_container(self, make_backend: BackendFactory) -> None:
        """Catches a stored container that is the caller's: appending to it would bypass every check."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        mine = [1]
        state.update(mine)
        mine.append("x")  # type: ignore[arg-type]
        assert state.get() == [1]
        state.update(state)
        assert state.get() == [1]

    def test_iterating_while_appending_sees_what_was_there(self, make_backend: BackendFactory) -> None:
        """Catches an endless loop, or a list that changes under its reader."""
        _, state = opened(make_backend, ListStateDescriptor("l", int))
        state.update([1, 2])
        for element in state:
            state.add(element * 10)
        assert state.get() == [1, 2, 10, 20]


class MapStateConformance:
    """A map state on any backend."""

    @pytest.fixture(params=[3, MANY], ids=["small", "large"])
    def size(self, request: pytest.FixtureRequest) -> int:
        """How many user keys a map has."""
        size: int = request.param
        return size

    def test_is_a_map_state_and_a_mutable_mapping(self, make_backend: BackendFactory) -> None:
        """Catches a handle that generic code, which asks for a Mapping, does not accept."""
        _, state = opened(make_backend, MapStateDescriptor("m", str, int))
        assert isinstance(state, MapState)
        assert isinstance(state, MutableMapping)
        assert repr(state) == "<map state 'm'>"
        with pytest.raises(TypeError):
            hash(state)

    def test_absent_looks_empty(self, make_backend: BackendFactory) -> None:
        """Catches None where a user expects an empty map, and reads that create."""
        backend, state = opened(make_backend, MapStateDescriptor("m", str, int))
        assert len(state) == 0
        assert state.is_empty()
        assert not state
        assert dict(state) == {} == state
        for view in (state.keys(), state.values(), state.items(), state.entries(), state.iterator()):
            assert list(view) == []
        assert state.get("a") is None
        assert state.get("a", 7) == 7
        assert not state.contains("a")
        state.remove("a")
        with pytest.raises(KeyError):
            state["a"]
        with pytest.raises(KeyError):
            del state["a"]
        with pytest.raises(KeyError):
            state.pop("a")
        with pytest.raises(KeyError):
            state.popitem()
        assert state.pop("a", 5) == 5
        assert backend.number_of_entries() == 0

    def test_flinks_names(self, make_backend: BackendFactory) -> None:
        """Catches a name that users of Flink know and that is missing or means something else."""
        _, state = opened(make_backend, MapStateDescriptor("m", str, int))
        state.put("a", 1)
        state.put_all({"b": 2, "c": 3})
        assert state.get("b") == 2
        assert state.contains("c")
        assert not state.is_empty()
        assert dict(state.entries()) == dict(state.iterator()) == {"a": 1, "b": 2, "c": 3}
        assert sorted(state.keys()) == ["a", "b", "c"]
        assert sorted(state.values()) == [1, 2, 3]
        state.remove("a")
        state.remove("a")
        assert not state.contains("a")
        state.clear()
        assert state.is_empty()

    def test_a_mutable_mappings_names(self, make_backend: BackendFactory, size: int) -> None:
        """Catches a difference from dict in any operation of MutableMapping, small and large."""
        _, state = opened(make_backend, MapStateDescriptor("m", str, int))
        model: dict[str, int] = {}
        for target in (state, model):
            for number in range(size):
                target[f"k{number}"] = number
            target["k0"] = 100
            target.update({"k1": 101})
            target.update([("k2", 102), ("k2", 103)], x=5)
            target.setdefault("k2", 7)
            target.setdefault("y", 7)
            del target["k1"]
        assert dict(state.items()) == model == state
        assert state != {**model, "z": 1}
        assert state != 5
        assert len(state) == len(model)
        assert set(state) == set(state.keys()) == set(model)
        assert sorted(state.values()) == sorted(model.values())
        assert ("k0", 100) in state.items()
        assert ("k0", 1) not in state.items()
        assert "k0" in state
        assert "nope" not in state
        assert state.keys() & {"k0", "nope"} == {"k0"}
        assert state.pop("k0") == 100
        key, value = state.popitem()
        assert model[key] == value
        assert len(state) == len(model) - 2

    def test_user_values_may_be_none(self, make_backend: BackendFactory, size: int) -> None:
        """Catches None taken for "not there", for values that cannot change and for those that can."""
        for value_type, other in ((int, 5), (list[int], [5])):
            backend = make_backend()
            backend.set_current_key("ann")
            state = backend.get_partitioned_state(MapStateDescriptor("m", str, value_type))
            for number in range(size):
                state[f"k{number}"] = other
            state["none"] = None
            with backend.snapshot():
                assert state.contains("none")
                assert "none" in state
                assert state["none"] is None
                assert state.get("none", 7) is None
                assert state.setdefault("none", other) is None
                assert dict(state.items())["none"] is None
                assert len(state) == size + 1
                assert state.pop("none", 7) is None
                assert not state.contains("none")

    def test_removing_the_last_user_key_removes_the_entry(self, make_backend: BackendFactory, size: int) -> None:
        """Catches an empty map left behind: counted, listed by `get_keys`, and written to every
        checkpoint.
        """
        ways: list[Callable[[Any, str], Any]] = [
            lambda state, key: state.remove(key),
            lambda state, key: state.pop(key),
            lambda state, key: state.__delitem__(key),
            lambda state, key: state.popitem(),
        ]
        for remove in ways:
            backend, state = opened(make_backend, MapStateDescriptor("m", str, int))
            state.put_all({f"k{number}": number for number in range(size)})
            for number in range(size):
                assert backend.number_of_entries() == 1
                assert list(backend.get_keys("m")) == ["ann"]
                remove(state, f"k{number}")
            assert backend.number_of_entries() == 0
            assert list(backend.get_keys("m")) == []
            assert state.is_empty()
            state["again"] = 1
            assert dict(state) == {"again": 1}

    def test_putting_nothing_creates_nothing(self, make_backend: BackendFactory) -> None:
        """Catches an empty map made by `put_all({})`, `update()` or a refused `put_all(None)`."""
        backend, state = opened(make_backend, MapStateDescriptor("m", str, int))
        state.put_all({})
        state.update()
        state.update({})
        with raising(StateTypeError, "mapping", state="m"):
            state.put_all(None)
        assert backend.number_of_entries() == 0
        assert list(backend.get_keys("m")) == []

    def test_growing_and_shrinking_keeps_everything(self, make_backend: BackendFactory) -> None:
        """Catches pairs lost or doubled where a map changes its form on the way up or down."""
        backend, state = opened(make_backend, MapStateDescriptor("m", int, int))
        model: dict[int, int] = {}
        for number in range(MANY):
            state[number] = model[number] = -number
            assert dict(state.items()) == model
            assert len(state) == len(model)
        for number in range(MANY):
            del state[number], model[number]
            assert dict(state.items()) == model
        assert backend.number_of_entries() == 0

    @pytest.mark.parametrize("key", [1.0, True, "1", None, [1]])
    def test_user_keys_of_another_type_are_refused(self, make_backend: BackendFactory, key: Any, size: int) -> None:
        """Catches 1, 1.0 and True taken for one user key by any way in."""
        _, state = opened(make_backend, MapStateDescriptor("m", int, str))
        state.put_all(dict.fromkeys(range(size), "x"))
        before = dict(state.items())
        ways: list[Callable[[], Any]] = [
            lambda: state.put(key, "y"),
            lambda: state.update([(2, "y"), (key, "y")]),
            lambda: state.get(key),
            lambda: state.get(key, "z"),
            lambda: state[key],
            lambda: state.contains(key),
            lambda: key in state,
            lambda: state.remove(key),
            lambda: state.pop(key, None),
            lambda: state.setdefault(key, "y"),
            lambda: state.__delitem__(key),
        ]
        for way in ways:
            with raising(StateTypeError, "user key", state="m"):
                way()
        assert dict(state.items()) == before

    def test_nan_is_no_user_key(self, make_backend: BackendFactory) -> None:
        """Catches a user key that can be put and never be found again."""
        _, state = opened(make_backend, MapStateDescriptor("m", float, int))
        with pytest.raises(StateTypeError):
            state.put(float("nan"), 1)
        state.put(1.5, 1)
        assert state[1.5] == 1

    def test_put_all_is_all_or_nothing(self, make_backend: BackendFactory) -> None:
        """Catches pairs before a refused one that were put already."""
        _, state = opened(make_backend, MapStateDescriptor("m", str, int))
        state["a"] = 1
        for pairs in ({"a": 2, "b": "x"}, {"a": 2, 3: 3}):
            with pytest.raises(StateTypeError):
                state.put_all(pairs)
            with pytest.raises(StateTypeError):
                state.update(pairs)
        assert dict(state.items()) == {"a": 1}

    def test_values_handed_out_by_key_count_and_by_iteration_do_not(
        self, make_backend: BackendFactory, size: int
    ) -> None:
        """Catches lost changes to `m[k]`, and state that a reader changes by way of an iteration."""
        _, state = opened(make_backend, MapStateDescriptor("m", int, list[int]))
        for number in range(size):
            state[number] = [number]
        state[1].append(5)
        state.get(2).append(6)
        for value in state.values():
            value.append(99)
        for _, value in state.items():
            value.append(99)
        expected = {number: [number] for number in range(size)}
        expected[1].append(5)
        expected[2].append(6)
        assert dict(state.items()) == expected

    def test_iteration_notices_a_change_of_size(self, make_backend: BackendFactory, size: int) -> None:
        """Catches an iteration that goes on, wherever it is, when user keys come, go or are cleared."""
        changes: list[Callable[[Any], Any]] = [
            lambda state: state.put(-1, -1),
            lambda state: state.remove(0),
            lambda state: state.clear(),
            lambda state: state.put_all(dict.fromkeys(range(100, 100 + MANY), 0)),
        ]
        for change in changes:
            for after in (1, size):  # in the middle, and behind the last one, as with a dict
                for view in ("keys", "values", "items", "entries", "iterator", "__iter__"):
                    _, state = opened(make_backend, MapStateDescriptor("m", int, int))
                    state.put_all({number: number for number in range(size)})
                    walk = iter(getattr(state, view)())
                    for _ in range(after):
                        next(walk)
                    change(state)
                    with pytest.raises(RuntimeError, match="during iteration"):
                        next(walk)

    def test_iteration_sees_values_change(self, make_backend: BackendFactory, size: int) -> None:
        """Catches a refusal of changed values, and values that are out of date when their turn comes."""
        backend, state = opened(make_backend, MapStateDescriptor("m", int, int))
        state.put_all({number: number for number in range(size)})
        with backend.snapshot():
            for key, value in state.items():
                assert value == key
                state[key] = -key
            assert dict(state.items()) == {number: -number for number in range(size)}
            walk = state.items()
            for position, (_, value) in enumerate(walk):
                if position == 0:
                    for number in range(size):
                        state[number] = 1000
                else:
                    assert value == 1000

    def test_iteration_kept_beyond_its_key_is_refused(self, make_backend: BackendFactory, size: int) -> None:
        """Catches an iterator kept across elements: it would read, or clean up, another key's map."""
        backend, state = opened(make_backend, MapStateDescriptor("m", int, int))
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            state.put_all({number: number for number in range(size)})
        for view in (state.keys(), state.items(), state.values()):
            backend.set_current_key("ann")
            walk = iter(view)
            next(walk)
            backend.set_current_key("bob")
            with raising(LifecycleError, key="ann"):
                next(walk)
        backend.set_current_key("ann")
        walk = state.iterator()
        backend.set_current_key("bob")
        backend.set_current_key("ann")
        assert len(list(walk)) == size  # the same key again is the same key


class FoldingStateConformance:
    """Reducing and aggregating state on any backend."""

    def test_are_not_taken_for_their_result(self, make_backend: BackendFactory) -> None:
        """Catches `if self.sum:`, which is always true, and `self.sum += 1`, which goes nowhere."""
        backend, reducing = opened(make_backend, ReducingStateDescriptor("r", int.__add__, int))
        aggregating = backend.get_partitioned_state(AggregatingStateDescriptor("a", Mean(), tuple[int, float]))
        for state in (reducing, aggregating):
            for use in (bool, lambda it: it == 0, _add):
                with raising(StateTypeError, r"\.get\(\) and \.add\(", state=state.descriptor.name):
                    use(state)

    def test_are_what_they_say(self, make_backend: BackendFactory) -> None:
        """Catches handles that `isinstance` does not know."""
        _, reducing = opened(make_backend, ReducingStateDescriptor("r", lambda a, b: a + b, int))
        assert isinstance(reducing, ReducingState)
        assert repr(reducing) == "<reducing state 'r'>"
        _, aggregating = opened(make_backend, AggregatingStateDescriptor("a", Mean(), tuple[float, int]))
        assert isinstance(aggregating, AggregatingState)
        assert repr(aggregating) == "<aggregating state 'a'>"

    def test_reducing(self, make_backend: BackendFactory) -> None:
        """Catches a function called for the first value, called the wrong way round, or None stored."""
        calls: list[tuple[str, str]] = []

        def join(old: str, new: str) -> str:
            calls.append((old, new))
            return old + new

        backend, state = opened(make_backend, ReducingStateDescriptor("r", join, str))
        assert state.get() is None
        state.add("a")
        assert calls == []
        state.add("b")
        state.add("c")
        assert state.get() == "abc"
        assert calls == [("a", "b"), ("ab", "c")]
        state.add(None)
        assert state.get() is None
        assert backend.number_of_entries() == 0
        with raising(StateTypeError, state="r"):
            state.add(1)
        assert backend.number_of_entries() == 0

    def test_aggregating(self, make_backend: BackendFactory) -> None:
        """Catches the accumulator handed out instead of the result, and a result of nothing that is not
        None.
        """
        backend, state = opened(make_backend, AggregatingStateDescriptor("a", Mean(), tuple[float, int]))
        assert state.get() is None
        state.add(1.0)
        state.add(4.0)
        assert state.get() == 2.5
        state.add(None)
        assert state.get() is None
        assert backend.number_of_entries() == 0

    @pytest.mark.parametrize("with_snapshot", [False, True])
    @pytest.mark.parametrize("existing", [False, True])
    def test_a_function_that_raises_changes_nothing(
        self, make_backend: BackendFactory, existing: bool, with_snapshot: bool
    ) -> None:
        """Catches a phantom entry, and a half-made change to an accumulator that the function changes in
        place.
        """
        backend = make_backend()
        backend.set_current_key("ann")
        reducing = backend.get_partitioned_state(ReducingStateDescriptor("r", extend, list[int]))
        mean = backend.get_partitioned_state(AggregatingStateDescriptor("m", Mean(), tuple[float, int]))
        collect = backend.get_partitioned_state(AggregatingStateDescriptor("c", Collect(), list[int]))
        reducing.add([1])
        if existing:
            mean.add(1.0)
            collect.add(1)
        entries = backend.number_of_entries()
        snapshot = backend.snapshot() if with_snapshot else None
        for state, value in ((reducing, [13]), (mean, -1.0), (collect, 13)):
            with pytest.raises(ValueError):
                state.add(value)
        assert reducing.get() == [1]
        assert mean.get() == (1.0 if existing else None)
        assert collect.get() == ([1] if existing else None)
        assert backend.number_of_entries() == entries
        if snapshot is not None:
            assert backend.changes(snapshot) == []
            snapshot.release()

    @pytest.mark.parametrize("result", [None, "x", 1.0])
    def test_what_a_function_returns_is_checked(self, make_backend: BackendFactory, result: Any) -> None:
        """Catches a wrong type, or a forgotten `return`, that would only be found when the state is
        written.
        """
        backend, state = opened(make_backend, ReducingStateDescriptor("r", lambda old, new: result, int))
        state.add(1)
        with raising(StateTypeError, "function", state="r"):
            state.add(2)
        assert state.get() == 1

        class Wrong(Collect):
            def add(self, value: int, accumulator: list[int]) -> list[int]:
                wrong: list[int] = result
                return wrong

        aggregating = backend.get_partitioned_state(AggregatingStateDescriptor("a", Wrong(), list[int]))
        with raising(StateTypeError, "aggregate function", state="a"):
            aggregating.add(1)
        assert aggregating.get() is None

    def test_a_result_is_not_the_accumulator(self, make_backend: BackendFactory) -> None:
        """Catches a result through which a caller changes the accumulator behind it."""
        _, state = opened(make_backend, AggregatingStateDescriptor("c", Collect(), list[int]))
        state.add(2)
        state.add(1)
        result = state.get()
        assert result == [1, 2]
        result.append(99)  # sorted() made it: the accumulator does not have it
        assert state.get() == [1, 2]
