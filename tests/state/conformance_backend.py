"""What every backend must do around its states: keys, namespaces, declarations, life cycle, points in time.

A backend's tests subclass these classes and give a fixture `make_backend` (`support.BackendFactory`).
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from emberstate.codec import TypeSchema, codec_for, opaque_codec
from emberstate.errors import (
    LifecycleError,
    StateDeclarationError,
    StateTypeError,
)
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.changes import ABSENT, apply_ops
from emberstate.state.declarations import MAX_STATES
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.ttl.config import TtlConfig, TtlUpdate
from tests.raising import raising
from tests.state.support import MANY, BackendFactory, Collect, Mean, Profile, entries_of, extend

HOUR = timedelta(hours=1)
HOUR_MICROS = 3_600_000_000


class KeyConformance:
    """The current key of any backend."""

    @pytest.mark.parametrize(
        ("key_type", "good", "bad"),
        [
            (int, 1, [1.0, True, "1", None, 2**63, [1]]),
            (str, "a", [1, b"a", None, ["a"]]),
            (float, 1.5, [1, True, None, float("nan")]),
            (bool, True, [1, 0, None]),
            ((str, int), ("a", 1), ["a", ("a",), ("a", 1.0), ("a", True), ("a", 1, 2), (None, 1)]),
        ],
    )
    def test_a_refused_key_leaves_the_context_as_it_was(
        self, make_backend: BackendFactory, key_type: Any, good: Any, bad: list[Any]
    ) -> None:
        """Catches 1, 1.0 and True taken for one key, and a context that holds a key it refused."""
        backend = make_backend(key_type)
        state = backend.get_partitioned_state(ValueStateDescriptor("v", int))
        for key in bad:
            with pytest.raises(StateTypeError):
                backend.set_current_key(key)
            assert backend.current_key is None
            with pytest.raises(LifecycleError):
                state.value()
        backend.set_current_key(good)
        state.update(7)
        for key in bad:
            with pytest.raises(StateTypeError):
                backend.set_current_key(key)
            assert backend.current_key == good
            assert state.value() == 7
        assert list(backend.get_keys("v")) == [good]

    def test_a_key_of_a_foreign_group_names_the_likely_cause(self, make_backend: BackendFactory) -> None:
        """Catches state written under a key group that another slot owns, and a context left half moved."""
        schema = KeySchema.from_python(str)
        groups = {key: schema.key_group(key, 8) for key in map(str, range(50))}
        backend = make_backend(max_parallelism=8, key_group_range=KeyGroupRange(2, 4))
        state = backend.get_partitioned_state(ValueStateDescriptor("v", int))
        mine = next(key for key, group in groups.items() if 2 <= group <= 4)
        backend.set_current_key(mine)
        state.update(1)
        for key, group in groups.items():
            if not 2 <= group <= 4:
                with raising(StateDeclarationError, key=key, key_group=group):
                    backend.set_current_key(key)
                assert backend.current_key == mine
                assert state.value() == 1

    @pytest.mark.reliability(29)
    def test_without_a_key_every_state_refuses(self, make_backend: BackendFactory) -> None:
        """Catches a read or write outside the handling of a row, which would go to whatever key was last."""
        backend = make_backend()
        for use in every_use(backend):
            with raising(LifecycleError, expected="a current key"):
                use()

    @pytest.mark.reliability(29)
    def test_after_close_every_state_refuses(self, make_backend: BackendFactory) -> None:
        """Catches a closed backend that still answers, with old state or with none at all."""
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        backend.set_current_key("ann")
        uses = every_use(backend)
        queue.register(1, "x")
        snapshot = backend.snapshot()
        backend.close()
        backend.close()
        uses += [
            lambda: backend.set_current_key("ann"),
            lambda: backend.get_partitioned_state(ValueStateDescriptor("v", int)),
            lambda: backend.get_timer_queue("t"),
            lambda: queue.poll(10),
            lambda: queue.peek(),
            lambda: backend.get_keys("v"),
            lambda: backend.get_keys_and_namespaces("v"),
            lambda: backend.number_of_entries(),
            lambda: backend.snapshot(),
            lambda: backend.changes(snapshot),
            lambda: backend.timer_changes(snapshot),
            lambda: backend.roll_back(snapshot),
        ]
        for use in uses:
            with raising(LifecycleError, found="closed"):
                use()
        snapshot.release()

    def test_the_keys_of_a_state_that_nobody_declares(self, make_backend: BackendFactory) -> None:
        """Catches a kept state that seems to have no keys, since its namespaces are bytes."""
        backend = make_backend()
        content, namespaces = opaque_codec(TypeSchema("int")), opaque_codec(TypeSchema("str"))
        backend.keep_state(ValueStateDescriptor("kept", content), namespaces)
        for use in (backend.get_keys, backend.get_keys_and_namespaces):
            with raising(StateDeclarationError, state="kept"):
                use("kept")
            assert list(use("of no such state")) == []

    def test_a_snapshot_released_elsewhere_is_not_live(self, make_backend: BackendFactory) -> None:
        """Catches a count of live snapshots with one that another thread has released."""
        backend = make_backend()
        with backend.snapshot():
            thread = threading.Thread(target=backend.snapshot().release)
            thread.start()
            thread.join()
            assert backend.statistics().live_snapshots == 1

    @pytest.mark.long
    def test_as_many_states_as_a_file_may_have(self, make_backend: BackendFactory) -> None:
        """Catches a state too many that is found out when nobody can read the file any more."""
        backend = make_backend()
        backend.get_timer_queue("timers")
        codec = codec_for(int)
        for number in range(MAX_STATES - 1):
            backend.get_partitioned_state(ValueStateDescriptor(f"state {number}", codec))
        with raising(StateDeclarationError, state="state too many"):
            backend.get_partitioned_state(ValueStateDescriptor("state too many", codec))
        with raising(StateDeclarationError, state="queue"):
            backend.get_timer_queue("queue")

    def test_what_was_given_out_stays_when_states_are_registered(self, make_backend: BackendFactory) -> None:
        """Catches states that come into a snapshot, or into a mapping that is being walked, later on."""
        backend = make_backend()
        backend.get_partitioned_state(ValueStateDescriptor("first", int))
        with backend.snapshot() as snapshot:
            for name in ("second", "third"):
                given = backend.registered_states, backend.timer_queues
                backend.get_partitioned_state(ValueStateDescriptor(name, int))
                backend.get_timer_queue(f"{name} queue")
                assert name not in given[0] and f"{name} queue" not in given[1]
            assert set(snapshot.states) == {"first"}
            assert not snapshot.timer_queues
        assert set(backend.registered_states) == {"first", "second", "third"}

    def test_what_is_no_snapshot_is_refused_by_name(self, make_backend: BackendFactory) -> None:
        """Catches an AttributeError or bare TypeError that says nothing about what is wanted."""
        backend = make_backend()
        backend.set_current_key("ann")
        value = backend.get_partitioned_state(ValueStateDescriptor("v", int))
        with backend.snapshot() as before:
            value.update(1)
            assert backend.changes(before.point) == backend.changes(before) != []
            for use in (backend.changes, backend.timer_changes, backend.roll_back):
                for wrong in (None, value):
                    with raising(StateTypeError, option="snapshot"):
                        use(wrong)

    @pytest.mark.reliability(29)
    def test_a_backend_cannot_leave_its_process(self, make_backend: BackendFactory) -> None:
        """Catches a backend caught in a closure that Spark sends elsewhere."""
        with raising(LifecycleError, option="__reduce__"):
            pickle.dumps(make_backend())

    def test_composite_keys(self, make_backend: BackendFactory) -> None:
        """Catches composite keys that are told apart by their first column only."""
        backend = make_backend((str, int))
        state = backend.get_partitioned_state(ValueStateDescriptor("v", int))
        for name in "ab":
            for number in range(3):
                backend.set_current_key((name, number))
                state.update(number)
        assert backend.number_of_entries() == 6
        assert sorted(backend.get_keys("v")) == [(name, number) for name in "ab" for number in range(3)]
        backend.set_current_key(("a", 2))
        assert state.value() == 2
        backend.check_invariants()


class WindowName(NamedTuple):
    """A namespace of two parts."""

    start: int
    end: int


class NamespaceConformance:
    """Namespaces on any backend."""

    def test_a_handle_stays_with_its_namespace(self, make_backend: BackendFactory) -> None:
        """Catches Flink's shared cursor: asking for a second namespace moved the first handle."""
        backend = make_backend()
        backend.set_current_key("ann")
        descriptor = ValueStateDescriptor("v", int)
        first = backend.get_partitioned_state(descriptor, "w1")
        second = backend.get_partitioned_state(descriptor, "w2")
        void = backend.get_partitioned_state(descriptor)
        first.update(1)
        second.update(2)
        assert (first.value(), second.value(), void.value()) == (1, 2, None)
        first.clear()
        assert (first.value(), second.value(), void.value()) == (None, 2, None)

    def test_a_namespace_is_of_its_declared_type(self, make_backend: BackendFactory) -> None:
        """Catches namespaces 1, 1.0 and True taken for one, None as a namespace, and a second type for one
        state.
        """
        backend = make_backend()
        for namespace in (None, 1, b"w"):
            with raising(StateTypeError, "namespace", state="v", field="$"):
                backend.get_partitioned_state(ValueStateDescriptor("v", int), namespace)
        descriptor = ValueStateDescriptor("w", int)
        backend.set_current_key("ann")
        window = WindowName(0, 10)
        state = backend.get_partitioned_state(descriptor, window, namespace_type=WindowName)
        state.update(5)
        assert list(backend.get_keys_and_namespaces("w")) == [("ann", window)]
        with pytest.raises(StateTypeError):
            wrong: Any = WindowName(0, 10.0)  # type: ignore[arg-type]
            backend.get_partitioned_state(descriptor, wrong, namespace_type=WindowName)
        with raising(StateDeclarationError, "namespace type", state="w"):
            backend.get_partitioned_state(descriptor)
        with pytest.raises(StateDeclarationError):
            backend.get_partitioned_state(ValueStateDescriptor("x", int), [1], namespace_type=list[int])

    def test_keys_by_namespace(self, make_backend: BackendFactory) -> None:
        """Catches keys listed for a namespace they have nothing in, twice, or for an unknown state."""
        backend = make_backend()
        descriptor = MapStateDescriptor("m", str, int)
        pairs = {("ann", "w1"), ("ann", "w2"), ("bob", "w2"), ("cid", "")}
        for key, namespace in pairs:
            backend.set_current_key(key)
            backend.get_partitioned_state(descriptor, namespace).put_all({"a": 1, "b": 2})
        assert set(backend.get_keys("m", "w2")) == {"ann", "bob"}
        assert list(backend.get_keys("m", "w1")) == ["ann"]
        assert list(backend.get_keys("m")) == ["cid"]
        assert list(backend.get_keys("m", "nowhere")) == []
        assert list(backend.get_keys("unknown")) == []
        listed = list(backend.get_keys_and_namespaces("m"))
        assert len(listed) == 4
        assert set(listed) == pairs
        assert list(backend.get_keys_and_namespaces("unknown")) == []
        assert backend.number_of_entries() == 4

    def test_apply_to_all_keys_may_clear_and_add(self, make_backend: BackendFactory) -> None:
        """Catches keys skipped or seen twice when the function changes the state, and a current key that
        moved.
        """
        backend = make_backend()
        descriptor = ValueStateDescriptor("v", int)
        state = backend.get_partitioned_state(descriptor)
        for number in range(MANY):
            backend.set_current_key(f"k{number}")
            state.update(number)
        seen = []

        def halve(key: str, value: Any) -> None:
            assert backend.current_key == key
            seen.append(key)
            if value.value() % 2:
                value.clear()
            else:
                backend.set_current_key(f"new-{key}")
                state.update(-1)

        backend.set_current_key("k3")
        backend.apply_to_all_keys(descriptor, halve)
        assert sorted(seen) == sorted(f"k{number}" for number in range(MANY))
        assert backend.current_key == "k3"
        assert backend.number_of_entries() == MANY

    def test_apply_to_all_keys_restores_the_key_when_the_function_raises(self, make_backend: BackendFactory) -> None:
        """Catches a row's further state going to another key after a caught error."""
        backend = make_backend()
        descriptor = ValueStateDescriptor("v", int)
        state = backend.get_partitioned_state(descriptor, "w")
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            state.update(1)

        def fail(key: str, value: Any) -> None:
            raise ZeroDivisionError(key)

        with pytest.raises(ZeroDivisionError):
            backend.apply_to_all_keys(descriptor, fail, "w")
        assert backend.current_key == "bob"
        calls: list[str] = []
        backend.apply_to_all_keys(descriptor, lambda key, value: calls.append(key), "elsewhere")
        assert calls == []

    def test_apply_to_all_keys_without_a_key_leaves_none(self, make_backend: BackendFactory) -> None:
        """Catches a current key that appears from nowhere."""
        backend = make_backend()
        descriptor = ValueStateDescriptor("v", int)
        backend.set_current_key("ann")
        backend.get_partitioned_state(descriptor).update(1)
        with backend.snapshot() as snapshot:
            backend.roll_back(snapshot)
        assert backend.current_key is None
        backend.apply_to_all_keys(descriptor, lambda key, value: value.clear())
        assert backend.current_key is None
        assert backend.number_of_entries() == 0


class MergeConformance:
    """`merge_namespaces` of list, reducing and aggregating state on any backend."""

    @pytest.fixture(params=[None, TtlConfig(HOUR)], ids=["plain", "ttl"])
    def merging(self, request: pytest.FixtureRequest, make_backend: BackendFactory) -> Any:
        """(backend, descriptor, how to write a number, how to read) for each of the three kinds."""
        backend = make_backend()
        backend.ttl_clock.processing_time = 0
        backend.set_current_key("ann")
        ttl = request.param
        kinds: list[tuple[StateDescriptor, Callable[[Any, int], None]]] = [
            (ListStateDescriptor("l", int, ttl=ttl), lambda state, number: state.add(number)),
            (ReducingStateDescriptor("r", extend, list[int], ttl=ttl), lambda state, n: state.add([n])),
            (AggregatingStateDescriptor("a", Collect(), list[int], ttl=ttl), lambda state, n: state.add(n)),
        ]
        return backend, kinds

    @pytest.mark.parametrize(
        ("content", "target", "sources", "expected"),
        [
            ({"a": [1, 2], "b": [3], "t": [0]}, "t", ["a", "b"], {"t": [0, 1, 2, 3]}),
            ({"a": [1], "b": [3]}, "t", ["b", "a"], {"t": [1, 3]}),
            ({"a": [1], "t": [0]}, "t", ["a", "t"], {"t": [0, 1]}),
            ({"t": [0, 5]}, "t", ["t"], {"t": [0, 5]}),
            ({"a": [1], "t": [0]}, "t", ["a", "a"], {"t": [0, 1]}),
            ({"a": [1], "t": [0]}, "t", ["nothing", "a", "nowhere"], {"t": [0, 1]}),
            ({"t": [0]}, "t", ["nothing"], {"t": [0]}),
            ({}, "t", ["nothing", "nowhere"], {}),
            ({"a": [1], "t": [0]}, "t", [], {"a": [1], "t": [0]}),
            ({"a": [1], "t": [0]}, "t", None, {"a": [1], "t": [0]}),
        ],
    )
    def test_merging(
        self,
        merging: Any,
        content: dict[str, list[int]],
        target: str,
        sources: list[str] | None,
        expected: dict[str, list[int]],
    ) -> None:
        """Catches sources kept, folded twice or created, a lost target, and merging into oneself."""
        backend, kinds = merging
        for descriptor, write in kinds:
            for namespace, numbers in content.items():
                for number in numbers:
                    write(backend.get_partitioned_state(descriptor, namespace), number)
            internal = backend.get_internal_state(descriptor, "elsewhere")
            backend.set_current_key("bob")
            write(backend.get_partitioned_state(descriptor, "a"), 77)
            backend.set_current_key("ann")
            internal.merge_namespaces(target, sources)
            found = {
                namespace: sorted(backend.get_partitioned_state(descriptor, namespace).get())
                for key, namespace in list(backend.get_keys_and_namespaces(descriptor.name))
                if key == "ann"
            }
            assert found == expected
            backend.set_current_key("bob")
            assert backend.get_partitioned_state(descriptor, "a").get() == [77]
            backend.set_current_key("ann")

    def test_lists_are_joined_in_order(self, make_backend: BackendFactory) -> None:
        """Catches a list merged in another order than: the target, then the sources as given."""
        backend = make_backend()
        backend.set_current_key("ann")
        descriptor = ListStateDescriptor("l", int)
        for namespace, numbers in {"t": [9, 8], "a": [2, 1], "b": [7, 7]}.items():
            backend.get_partitioned_state(descriptor, namespace).add_all(numbers)
        target = backend.get_partitioned_state(descriptor, "t")
        backend.get_internal_state(descriptor).merge_namespaces("t", ["b", "a"])
        assert target.get() == [9, 8, 7, 7, 2, 1]

    def test_a_merge_that_raises_changes_nothing(self, make_backend: BackendFactory) -> None:
        """Catches sources that are gone although their merge failed: silent loss once the error is
        handled.
        """
        backend = make_backend()
        backend.set_current_key("ann")
        cases: list[tuple[StateDescriptor, Any, Any]] = [
            (AggregatingStateDescriptor("a", Collect(), list[int]), 66, 1),
            (ReducingStateDescriptor("r", extend, list[int]), [13], [1]),
        ]
        for descriptor, bad, good in cases:
            for namespace, value in {"t": good, "x": good, "y": bad}.items():
                backend.get_partitioned_state(descriptor, namespace).add(value)
        with backend.snapshot() as snapshot:
            for descriptor, _, _ in cases:
                internal = backend.get_internal_state(descriptor, "t")
                for sources in (["x", "y"], ["y", "x"], ["y"], ["t", "y"]):
                    with pytest.raises(ValueError):
                        internal.merge_namespaces("t", sources)
            assert backend.changes(snapshot) == []

    def test_expired_sources_are_dropped(self, make_backend: BackendFactory) -> None:
        """Catches expired operands that come back to life by a merge, and a stored None where all had
        expired.
        """
        backend = make_backend()
        backend.set_current_key("ann")
        ttl = TtlConfig(HOUR)
        kinds: list[tuple[StateDescriptor, Callable[[Any, int], None]]] = [
            (ListStateDescriptor("l", int, ttl=ttl), lambda state, number: state.add(number)),
            (ReducingStateDescriptor("r", extend, list[int], ttl=ttl), lambda state, n: state.add([n])),
            (AggregatingStateDescriptor("a", Collect(), list[int], ttl=ttl), lambda state, n: state.add(n)),
        ]
        for descriptor, write in kinds:
            handles = {name: backend.get_partitioned_state(descriptor, name) for name in "tuxy"}
            backend.ttl_clock.processing_time = 0
            for name in "tux":
                write(handles[name], 1)
            backend.ttl_clock.processing_time = HOUR_MICROS - 1
            write(handles["y"], 2)
            backend.ttl_clock.processing_time = HOUR_MICROS
            backend.get_internal_state(descriptor).merge_namespaces("t", ["u", "x"])
            assert list(backend.get_keys(descriptor.name, "t")) == []
            write(handles["x"], 3)
            backend.get_internal_state(descriptor).merge_namespaces("t", ["u", "y", "x"])
            assert sorted(handles["t"].get()) == [2, 3]
            assert {name for _, name in backend.get_keys_and_namespaces(descriptor.name)} == {"t"}

    def test_merged_list_elements_keep_their_stamps(self, make_backend: BackendFactory) -> None:
        """Catches a merge that makes old elements young."""
        backend = make_backend()
        backend.set_current_key("ann")
        descriptor = ListStateDescriptor("l", int, ttl=TtlConfig(HOUR))
        backend.ttl_clock.processing_time = 0
        backend.get_partitioned_state(descriptor, "a").add(1)
        backend.ttl_clock.processing_time = HOUR_MICROS - 1
        target = backend.get_partitioned_state(descriptor, "t")
        target.add(2)
        backend.get_internal_state(descriptor).merge_namespaces("t", ["a"])
        assert target.get() == [2, 1]
        backend.ttl_clock.processing_time = HOUR_MICROS
        assert target.get() == [2]


class DeclarationConformance:
    """Declaring states on any backend."""

    @pytest.mark.parametrize(
        ("second", "what"),
        [
            (ListStateDescriptor("s", int), "kind"),
            (ValueStateDescriptor("s", float), "type"),
            (ValueStateDescriptor("s", int, ttl=TtlConfig(HOUR)), "time to live"),
            (ValueStateDescriptor("s", int, default=1), "default"),
        ],
    )
    def test_a_second_declaration_must_say_the_same(
        self, make_backend: BackendFactory, second: StateDescriptor, what: str
    ) -> None:
        """Catches Flink's habit to return the first state, ignoring what the second descriptor says."""
        backend = make_backend()
        backend.set_current_key("ann")
        state = backend.get_partitioned_state(ValueStateDescriptor("s", int))
        state.update(1)
        again = backend.get_partitioned_state(ValueStateDescriptor("s", int))
        assert again.value() == 1
        with raising(StateDeclarationError, what, state="s"):
            backend.get_partitioned_state(second)
        assert state.value() == 1

    def test_a_second_map_or_ttl_must_say_the_same(self, make_backend: BackendFactory) -> None:
        """Catches another type of user key, or other rules of expiry, for a state that has content."""
        backend = make_backend()
        ttl = TtlConfig(HOUR)
        backend.get_partitioned_state(MapStateDescriptor("m", str, int, ttl=ttl))
        with raising(StateDeclarationError, "user key type", state="m"):
            backend.get_partitioned_state(MapStateDescriptor("m", int, int, ttl=ttl))
        for other in (None, TtlConfig(2 * HOUR), TtlConfig(HOUR, update=TtlUpdate.ON_READ_AND_WRITE)):
            with raising(StateDeclarationError, "time to live", state="m"):
                backend.get_partitioned_state(MapStateDescriptor("m", str, int, ttl=other))

    def test_names_of_states_and_of_timer_queues_are_apart(self, make_backend: BackendFactory) -> None:
        """Catches a timer queue that shares its table with a state of the same name."""
        backend = make_backend()
        state = backend.get_partitioned_state(ValueStateDescriptor("same", int))
        queue = backend.get_timer_queue("same")
        backend.set_current_key("ann")
        state.update(1)
        queue.register(5, "x")
        assert state.value() == 1
        assert len(queue) == 1
        assert list(backend.registered_kv_states) == ["same"]
        assert backend.get_timer_queue("same") is queue

    def test_only_descriptors_declare(self, make_backend: BackendFactory) -> None:
        """Catches a state asked for by name only, which would have no types."""
        with raising(StateDeclarationError, option="descriptor"):
            make_backend().get_partitioned_state("total")


class PointInTimeConformance:
    """Snapshots, changes and roll-backs of any backend, one step at a time; the model test does the
    mixtures.
    """

    def test_a_snapshot_keeps_what_was(self, make_backend: BackendFactory) -> None:
        """Catches a snapshot that sees later writes, or a state that was first made later."""
        backend = make_backend()
        backend.set_current_key("ann")
        value = backend.get_partitioned_state(ValueStateDescriptor("v", Profile))
        value.update(Profile(1))
        snapshot = backend.snapshot()
        value.value().visits = 2
        backend.get_partitioned_state(ListStateDescriptor("late", int)).add(1)
        groups = range(backend.context.max_parallelism)
        assert entries_of(snapshot, "v", iter(groups)) == {("ann", ""): Profile(1)}
        with raising(StateDeclarationError, state="late"):
            snapshot.entries("late", 0)
        snapshot.release()
        snapshot.release()
        with pytest.raises(LifecycleError):
            list(snapshot.entries("v", 0))
        for use in (backend.changes, backend.timer_changes, backend.roll_back):
            with pytest.raises(LifecycleError):
                use(snapshot)

    def test_changes_lead_from_the_old_content_to_the_new(self, make_backend: BackendFactory) -> None:
        """Catches records in the wrong order: a map cleared and filled again would merge with what it had."""
        backend = make_backend()
        backend.set_current_key("ann")
        map_state = backend.get_partitioned_state(MapStateDescriptor("m", str, int))
        list_state = backend.get_partitioned_state(ListStateDescriptor("l", int))
        map_state.put_all({"a": 1, "b": 2})
        list_state.add_all([1, 2])
        with backend.snapshot() as snapshot:
            groups = range(backend.context.max_parallelism)
            old = {name: entries_of(snapshot, name, iter(groups)) for name in ("m", "l")}
            map_state.clear()
            map_state["c"] = 3
            list_state.add(3)
            listed = backend.changes(snapshot)
            assert {name for name, _, _ in listed} == {"m", "l"}
            for name, _, (key, namespace, ops) in listed:
                new = apply_ops(old[name].get((key, namespace), ABSENT), ops)
                assert new == {"m": {"c": 3}, "l": [1, 2, 3]}[name]

    def test_what_was_only_read_is_not_listed(self, make_backend: BackendFactory) -> None:
        """Catches a commit whose size follows what was read: every value handed out would be written."""
        backend = make_backend()
        backend.set_current_key("ann")
        value = backend.get_partitioned_state(ValueStateDescriptor("v", Profile))
        map_state = backend.get_partitioned_state(MapStateDescriptor("m", int, list[int]))
        folded = backend.get_partitioned_state(AggregatingStateDescriptor("a", Collect(), list[int]))
        value.update(Profile(1))
        map_state.put_all({number: [number] for number in range(MANY)})
        folded.add(1)
        with backend.snapshot() as snapshot:
            value.value()
            value.update(value.value())
            value.update(Profile(1))
            for number in range(MANY):
                map_state[number]
            map_state.get(-1)
            folded.get()
            assert backend.changes(snapshot) == []

    def test_roll_back_undoes_everything_since(self, make_backend: BackendFactory) -> None:
        """Catches something that outlives a failed attempt: a value, a user key, a state first used in it."""
        backend = make_backend()
        backend.set_current_key("ann")
        value = backend.get_partitioned_state(ValueStateDescriptor("v", list[int]))
        map_state = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
        value.update([1])
        map_state.put_all({number: number for number in range(MANY)})
        with backend.snapshot() as snapshot:
            for _ in range(2):
                backend.set_current_key("ann")
                value.value().append(2)
                map_state.clear()
                late = backend.get_partitioned_state(ListStateDescriptor("late", int))
                late.add(1)
                backend.roll_back(snapshot)
                with pytest.raises(LifecycleError):
                    value.value()
                backend.set_current_key("ann")
                assert value.value() == [1]
                assert dict(map_state.items()) == {number: number for number in range(MANY)}
                assert late.get() == []
                assert backend.changes(snapshot) == []
                backend.check_invariants()

    def test_a_snapshot_of_another_backend_is_refused(self, make_backend: BackendFactory) -> None:
        """Catches a roll-back to, or changes since, a point in time of something else."""
        mine, other = make_backend(), make_backend()
        with other.snapshot() as snapshot:
            for use in (mine.changes, mine.timer_changes, mine.roll_back):
                with raising(StateDeclarationError, option="snapshot"):
                    use(snapshot)


def every_use(backend: Any) -> list[Callable[[], Any]]:
    """Every operation of every kind of state, on handles of `backend`."""
    value = backend.get_partitioned_state(ValueStateDescriptor("v", int))
    values = backend.get_partitioned_state(ListStateDescriptor("l", int))
    pairs = backend.get_partitioned_state(MapStateDescriptor("m", str, int))
    lists = backend.get_partitioned_state(MapStateDescriptor("n", str, list[int]))
    reducing = backend.get_partitioned_state(ReducingStateDescriptor("r", max, int))
    aggregating = backend.get_partitioned_state(AggregatingStateDescriptor("a", Mean(), tuple[float, int]))
    queue = backend.get_timer_queue("t")
    return [
        lambda: value.value(),
        lambda: value.update(1),
        lambda: value.update(None),
        lambda: value.clear(),
        lambda: values.get(),
        lambda: values.add(1),
        lambda: values.add_all([1]),
        lambda: values.update([1]),
        lambda: values.update([]),
        lambda: values.is_empty(),
        lambda: len(values),
        lambda: list(values),
        lambda: pairs.get("a"),
        lambda: pairs["a"],
        lambda: lists["a"],
        lambda: pairs.put("a", 1),
        lambda: pairs.put_all({"a": 1}),
        lambda: pairs.contains("a"),
        lambda: pairs.remove("a"),
        lambda: pairs.is_empty(),
        lambda: len(pairs),
        lambda: list(pairs),
        lambda: list(pairs.items()),
        lambda: list(pairs.values()),
        lambda: pairs.popitem(),
        lambda: pairs.clear(),
        lambda: reducing.get(),
        lambda: reducing.add(1),
        lambda: reducing.clear(),
        lambda: aggregating.get(),
        lambda: aggregating.add(1.0),
        lambda: aggregating.clear(),
        lambda: queue.register(1, "x"),
        lambda: queue.delete(1, "x"),
        lambda: queue.timers_of_current_key(),
    ]
