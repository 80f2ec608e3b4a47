"""Whose a backend is: state used by another thread, another process, or after close is refused at once.

A backend's tests subclass this and give a fixture `make_backend` (`support.BackendFactory`).
"""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from emberstate.errors import LifecycleError
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from tests.raising import raising
from tests.state.conformance_backend import every_use
from tests.state.support import MANY, BackendFactory, entries_of


def elsewhere(function: Callable[[], Any]) -> Any:
    """What the function gives or raises on another thread, named "elsewhere_0"."""
    with ThreadPoolExecutor(1, thread_name_prefix="elsewhere") as pool:
        return pool.submit(function).result()


def in_a_fork(function: Callable[[], Any]) -> str:
    """What the function raises in a forked child; "" if nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = "the child died before it could say anything"
        try:
            function()
            said = ""
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def every_use_of_a_backend(backend: Any, snapshot: Any) -> list[Callable[[], Any]]:
    """What can be done with a backend and its timers beside the states; `close` is the last."""
    queue = backend.get_timer_queue("t")
    return [
        lambda: backend.set_current_key("bob"),
        lambda: backend.context.set_current_key_and_group("bob", 0),
        lambda: backend.context.key_group,
        lambda: backend.context.clear(),
        lambda: backend.get_partitioned_state(ValueStateDescriptor("v", int)),
        lambda: backend.get_internal_state(ValueStateDescriptor("v", int)),
        lambda: backend.get_timer_queue("t"),
        lambda: queue.poll(10),
        lambda: queue.peek(),
        lambda: len(queue),
        lambda: queue.timers_of_group(0),
        lambda: queue.statistics(),
        lambda: backend.get_keys("v"),
        lambda: backend.get_keys_and_namespaces("v"),
        lambda: backend.apply_to_all_keys(ValueStateDescriptor("v", int), lambda key, state: None),
        lambda: backend.number_of_entries(),
        lambda: backend.clean_up(10),
        lambda: backend.snapshot(),
        lambda: backend.changes(snapshot),
        lambda: backend.timer_changes(snapshot),
        lambda: backend.roll_back(snapshot),
        lambda: backend.statistics(),
        lambda: backend.close(),
    ]


@pytest.mark.reliability(29)
class OwnerConformance:
    """One owner thread, in one process, until the backend is closed."""

    @staticmethod
    def filled(make_backend: BackendFactory) -> Any:
        """A backend with a key, states and timers."""
        backend = make_backend()
        backend.ttl_clock.processing_time = 0
        backend.set_current_key("ann")
        backend.get_partitioned_state(ValueStateDescriptor("v", int)).update(1)
        backend.get_partitioned_state(MapStateDescriptor("m", str, int)).put("a", 1)
        backend.get_timer_queue("t").register(5, "x")
        return backend

    def test_another_thread_is_refused_by_name(self, make_backend: BackendFactory) -> None:
        """Catches any way in for a second thread: two threads that change state corrupt it without a sign."""
        backend = self.filled(make_backend)
        mine = threading.current_thread().name
        uses = every_use(backend)
        with backend.snapshot() as snapshot:
            for use in uses + every_use_of_a_backend(backend, snapshot):
                with raising(LifecycleError, expected=mine, found="elsewhere_0"):
                    elsewhere(use)
            assert backend.current_key == "ann"
            assert backend.changes(snapshot) == []
            assert backend.timer_changes(snapshot) == []
        backend.check_invariants()

    @pytest.mark.parametrize("size", [3, MANY])
    def test_an_iterator_carried_to_another_thread_is_refused(self, make_backend: BackendFactory, size: int) -> None:
        """Catches an iteration begun by the owner and drained in the background while the owner goes on."""
        backend = make_backend()
        pairs = MapStateDescriptor("m", int, int)
        state = backend.get_partitioned_state(pairs)
        for number in range(size):
            backend.set_current_key(f"k{number}")
            state.put(number, number)
        backend.set_current_key("ann")
        state.put_all({number: number for number in range(size)})
        for walk in (
            state.iterator(),
            iter(state),
            iter(state.items()),
            iter(state.values()),
            iter(backend.get_keys("m")),
            iter(backend.get_keys_and_namespaces("m")),
        ):
            next(walk)
            with raising(LifecycleError, found="elsewhere_0"):
                elsewhere(lambda walk=walk: list(walk))  # type: ignore[misc]

    def test_an_iterator_kept_beyond_its_key_or_its_backend_is_refused(self, make_backend: BackendFactory) -> None:
        """Catches an iterator kept across rows that goes on in another key's map, or in a closed backend."""
        backend = make_backend()
        state = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
        for key in ("ann", "bob"):
            backend.set_current_key(key)
            state.put_all({number: number for number in range(MANY)})
        walk = state.iterator()
        keys = iter(backend.get_keys("m"))
        next(walk)
        next(keys)
        backend.set_current_key("ann")
        with raising(LifecycleError, key="bob"):
            next(walk)
        walk = state.iterator()
        next(walk)
        backend.close()
        for kept in (walk, keys):
            with raising(LifecycleError, found="closed"):
                next(kept)

    def test_a_snapshot_may_be_read_and_released_by_any_thread(self, make_backend: BackendFactory) -> None:
        """Catches a snapshot that only its backend's thread can read: bases could not be written beside it."""
        backend = self.filled(make_backend)
        groups = range(backend.context.max_parallelism)
        snapshot = backend.snapshot()
        backend.get_partitioned_state(ValueStateDescriptor("v", int)).update(2)
        assert elsewhere(lambda: entries_of(snapshot, "v", iter(groups))) == {("ann", ""): 1}
        assert elsewhere(lambda: [key for group in groups for key, _, _ in snapshot.timers("t", group)]) == ["ann"]
        elsewhere(snapshot.release)
        with backend.snapshot() as again:
            assert backend.changes(again) == []

    def test_a_backend_can_be_handed_over(self, make_backend: BackendFactory) -> None:
        """Catches a backend that stays with the thread that restored it, or that two threads own."""
        backend = self.filled(make_backend)
        value = backend.get_partitioned_state(ValueStateDescriptor("v", int))

        def take_over() -> int:
            backend.context.own()
            value.update(value.value() + 1)
            with backend.snapshot() as snapshot:
                backend.roll_back(snapshot)
            backend.set_current_key("ann")
            number: int = value.value()
            return number

        assert elsewhere(take_over) == 2
        with raising(LifecycleError, expected="elsewhere_0"):
            value.value()
        backend.context.own()
        assert value.value() == 2

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_child_owns_nothing(self, make_backend: BackendFactory) -> None:
        """Catches state changed in a forked child, which nobody will ever see, or read there half changed."""
        backend = self.filled(make_backend)
        value = backend.get_partitioned_state(ValueStateDescriptor("v", int))
        for use in (value.value, backend.snapshot, lambda: backend.set_current_key("bob"), backend.context.own):
            said = in_a_fork(use)
            assert said.startswith(f"LifecycleError: state that belongs to process {os.getpid()} was used by")
        assert value.value() == 1

    def test_nothing_of_a_backend_can_be_pickled_or_copied(self, make_backend: BackendFactory) -> None:
        """Catches a handle caught in a closure: pickled, it would drag a copy of all state along."""
        backend = self.filled(make_backend)
        for thing in (
            backend,
            backend.context,
            backend.get_timer_queue("t"),
            backend.get_partitioned_state(ValueStateDescriptor("v", int)),
            backend.get_partitioned_state(ListStateDescriptor("l", int)),
            backend.get_partitioned_state(MapStateDescriptor("m", str, int)),
        ):
            for leave in (pickle.dumps, copy.copy, copy.deepcopy):
                with raising(LifecycleError, option="__reduce__"):
                    leave(thing)
