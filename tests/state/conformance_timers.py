"""What every backend's timer queues must do.

A backend's tests subclass this and give a fixture `make_backend` (`support.BackendFactory`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from emberstate.errors import StateDeclarationError, StateTypeError
from emberstate.state.changes import ABSENT, apply_ops
from emberstate.state.timers import Timer
from tests.raising import raising
from tests.state.support import BackendFactory


def fire_all(queue: Any, until: int) -> list[Timer]:
    """Poll until nothing is due."""
    fired = []
    while (timer := queue.poll(until)) is not None:
        fired.append(timer)
    return fired


class TimerConformance:
    """A timer queue on any backend."""

    @pytest.mark.reliability(22)
    def test_fires_in_order_of_time_key_name_and_namespace(self, make_backend: BackendFactory) -> None:
        """Catches an order that depends on key groups, on registration or on hashing: reruns would differ."""
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        timers = [
            Timer(time, key, name, namespace)
            for time in (-5, 0, 7)
            for key in ("ann", "bob", "cid")
            for name in ("a", "b")
            for namespace in ("", "w1", "w2")
        ]
        for timer in timers[::-1]:
            backend.set_current_key(timer.key)
            assert queue.register(timer.time, timer.name, timer.namespace)
        assert len(queue) == len(timers)
        fired = []
        while (peeked := queue.peek()) is not None:
            timer = queue.poll(7)
            assert timer == peeked
            assert backend.current_key == timer.key
            fired.append(timer)
        assert fired == timers
        assert len(queue) == 0
        backend.check_invariants()

    @pytest.mark.reliability(22)
    def test_the_same_timer_twice_is_one(self, make_backend: BackendFactory) -> None:
        """Catches a timer that fires twice because it was registered twice, also after it was deleted
        between.
        """
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        backend.set_current_key("ann")
        assert queue.register(5, "x")
        assert not queue.register(5, "x")
        assert queue.register(5, "y")
        assert queue.register(6, "x")
        assert queue.register(5, "x", "w")
        assert queue.delete(5, "x")
        assert not queue.delete(5, "x")
        assert queue.register(5, "x")
        assert len(queue) == 4
        assert fire_all(queue, 10) == [
            Timer(5, "ann", "x", ""),
            Timer(5, "ann", "x", "w"),
            Timer(5, "ann", "y", ""),
            Timer(6, "ann", "x", ""),
        ]
        assert queue.register(5, "x")  # fired, it may come again, though its time has passed
        assert fire_all(queue, 10) == [Timer(5, "ann", "x", "")]

    @pytest.mark.reliability(22)
    def test_poll_is_inclusive(self, make_backend: BackendFactory) -> None:
        """Catches a boundary that is off by one: a timer at t fires when the time is t."""
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        backend.set_current_key("ann")
        for time in (-(2**63), -1, 0, 2**63 - 1):
            queue.register(time, "x")
        assert queue.poll(-(2**63) - 1) is None
        assert queue.poll(-(2**63)) == Timer(-(2**63), "ann", "x")
        assert queue.poll(-2) is None
        assert fire_all(queue, 0) == [Timer(-1, "ann", "x"), Timer(0, "ann", "x")]
        assert queue.poll(2**63 - 2) is None
        assert queue.poll(2**63 - 1) == Timer(2**63 - 1, "ann", "x")
        assert queue.peek() is None
        assert queue.poll(2**63 - 1) is None

    @pytest.mark.reliability(22)
    def test_registering_and_deleting_while_firing(self, make_backend: BackendFactory) -> None:
        """Catches a timer registered by a timer that is lost or fires late, and a deletion that comes too
        late.
        """
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        backend.set_current_key("ann")
        for time in (1, 2, 3):
            queue.register(time, "x")
        assert queue.poll(3) == Timer(1, "ann", "x")
        assert queue.delete(2, "x")
        queue.register(0, "past")
        queue.register(3, "more")
        assert fire_all(queue, 3) == [Timer(0, "ann", "past"), Timer(3, "ann", "more"), Timer(3, "ann", "x")]

    def test_timers_of_the_current_key(self, make_backend: BackendFactory) -> None:
        """Catches timers of other keys, fired or deleted ones in the list, and another order than that of
        firing.
        """
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            for time in range(20, 0, -1):
                queue.register(time, "x", f"w{time % 3}")
        backend.set_current_key("ann")
        queue.delete(7, "x", "w1")
        queue.poll(1)
        backend.set_current_key("ann")
        expected = [Timer(time, "ann", "x", f"w{time % 3}") for time in range(2, 21) if time != 7]
        assert queue.timers_of_current_key() == expected
        backend.set_current_key("cid")
        assert queue.timers_of_current_key() == []
        assert sorted(
            timer for group in range(backend.context.max_parallelism) for timer in queue.timers_of_group(group)
        ) == sorted([*expected, *(Timer(time, "bob", "x", f"w{time % 3}") for time in range(1, 21))])

    @pytest.mark.parametrize(
        "arguments",
        [
            (1.0, "x"),
            (True, "x"),
            (2**63, "x"),
            (timedelta(1), "x"),
            (None, "x"),
            (1, ""),
            (1, None),
            (1, 7),
            (1, "x", None),
            (1, "x", 5),
            (1, "x", ["w"]),
        ],
    )
    def test_what_is_no_timer_is_refused(self, make_backend: BackendFactory, arguments: tuple[Any, ...]) -> None:
        """Catches a timer that cannot be ordered or stored, or that is taken for another (1, 1.0 and
        True).
        """
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        backend.set_current_key("ann")
        queue.register(1, "x")
        with pytest.raises(StateTypeError):
            queue.register(*arguments)
        with pytest.raises(StateTypeError):
            queue.delete(*arguments)
        assert queue.timers_of_current_key() == [Timer(1, "ann", "x")]
        backend.check_invariants()

    def test_namespaces_of_another_type(self, make_backend: BackendFactory) -> None:
        """Catches namespaces that cannot be compared (None with a number): ordering must not fail midway."""
        backend = make_backend()
        queue = backend.get_timer_queue("t", namespace_type=tuple[int | None, int])
        backend.set_current_key("ann")
        namespaces: list[tuple[int | None, int]] = [(3, 1), (None, 1), (1, 2)]
        for namespace in namespaces:
            queue.register(5, "x", namespace)
        fired = fire_all(queue, 5)
        assert {timer.namespace for timer in fired} == set(namespaces)
        for namespace in reversed(namespaces):
            queue.register(5, "x", namespace)
        assert fire_all(queue, 5) == fired
        assert backend.get_timer_queue("t", namespace_type=tuple[int | None, int]) is queue
        with raising(StateDeclarationError, state="t"):
            backend.get_timer_queue("t")

    def test_composite_keys_order_by_their_columns(self, make_backend: BackendFactory) -> None:
        """Catches composite keys ordered by anything else than their columns."""
        backend = make_backend((str, int))
        queue = backend.get_timer_queue("t")
        keys = [(name, number) for name in ("a", "b") for number in (-1, 2, 10)]
        for key in reversed(keys):
            backend.set_current_key(key)
            queue.register(1, "x")
        assert [timer.key for timer in fire_all(queue, 1)] == keys

    @pytest.mark.reliability(22)
    def test_a_roll_back_brings_fired_timers_back_once(self, make_backend: BackendFactory) -> None:
        """Catches timers lost, or fired twice, when a failed attempt is tried again."""
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            queue.register(1, "x")
            queue.register(2, "x")
        with backend.snapshot() as snapshot:
            for _ in range(3):
                first = fire_all(queue, 1)
                assert [timer.key for timer in first] == ["ann", "bob"]
                backend.set_current_key("ann")
                queue.register(1, "again")
                queue.delete(2, "x")
                backend.roll_back(snapshot)
                assert len(queue) == 4
                backend.check_invariants()
        assert fire_all(queue, 9) == [Timer(time, key, "x") for time in (1, 2) for key in ("ann", "bob")]

    def test_changes_list_timers_once_by_key(self, make_backend: BackendFactory) -> None:
        """Catches timers that a commit forgets or writes though nothing came of them."""
        backend = make_backend()
        queue = backend.get_timer_queue("t")
        for key in ("ann", "bob", "cid"):
            backend.set_current_key(key)
            queue.register(1, "x")
        with backend.snapshot() as snapshot:
            old = {
                key: content
                for group in range(backend.context.max_parallelism)
                for key, _, content in snapshot.timers("t", group)
            }
            assert old == {key: {(1, "x", ""): True} for key in ("ann", "bob", "cid")}
            queue.peek()
            queue.timers_of_current_key()
            assert backend.timer_changes(snapshot) == []
            assert queue.poll(1).key == "ann"
            backend.set_current_key("bob")
            queue.register(2, "y", "w")
            backend.set_current_key("cid")
            queue.register(2, "y")
            queue.delete(2, "y")
            new = {}
            for name, _, (key, namespace, ops) in backend.timer_changes(snapshot):
                assert (name, namespace) == ("t", "")
                new[key] = apply_ops(old[key], ops)
            assert new.pop("cid", old["cid"]) == old["cid"]
            assert new == {"ann": ABSENT, "bob": {(1, "x", ""): True, (2, "y", "w"): True}}
            assert backend.changes(snapshot) == []
            with raising(StateDeclarationError, state="u"):
                snapshot.timers("u", 0)
