"""A backend with a state of every kind, random operations on it, and its content as plain data to compare."""

from __future__ import annotations

import copy
import dataclasses
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, StateTable
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig

MAX_PARALLELISM = 16


@dataclasses.dataclass
class Profile:
    """A value that can change in place."""

    name: str
    tags: list[str]
    score: float | None = None


class Mean(AggregateFunction[int, tuple[int, int], float]):
    """Count and sum."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + 1, accumulator[1] + value)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return (one[0] + other[0], one[1] + other[1])


_HOUR = TtlConfig(timedelta(hours=1))

DESCRIPTORS: dict[str, StateDescriptor] = {
    "total": ValueStateDescriptor("total", int),
    "profile": ValueStateDescriptor("profile", Profile),
    "window": ValueStateDescriptor("window", float),
    "visits": ListStateDescriptor("visits", str),
    "drafts": ListStateDescriptor("drafts", list[int]),
    "seen": MapStateDescriptor("seen", str, int),
    "notes": MapStateDescriptor("notes", tuple[int, str], dict[str, bytes]),
    "best": ReducingStateDescriptor("best", max, int),
    "mean": AggregatingStateDescriptor("mean", Mean(), tuple[int, int]),
    "last": ValueStateDescriptor("last", bytes, ttl=_HOUR),
    "ages": MapStateDescriptor("ages", int, str, ttl=_HOUR),
    "log": ListStateDescriptor("log", int, ttl=_HOUR),
}
NAMESPACE_TYPES: dict[str, Any] = {"window": tuple[int, int]}
QUEUES = ("event", "processing")


def make_backend(
    groups: KeyGroupRange | None = None,
    *,
    key_schema: KeySchema | None = None,
    table_type: type[StateTable] = CopyOnWriteStateTable,
    names: tuple[str, ...] = tuple(DESCRIPTORS),
    now: int = 1_000_000,
) -> HeapKeyedStateBackend:
    """A backend with all the states registered."""
    backend = HeapKeyedStateBackend(
        key_schema or KeySchema.from_python(str),
        max_parallelism=MAX_PARALLELISM,
        key_group_range=groups,
        table_type=table_type,
    )
    backend.ttl_clock.processing_time = now
    for name in names:
        backend.get_partitioned_state(
            DESCRIPTORS[name],
            (0, 1) if name == "window" else "",
            namespace_type=NAMESPACE_TYPES.get(name, str),
        )
    for name in QUEUES:
        backend.get_timer_queue(name)
    return backend


def content_of(backend: Any, groups: KeyGroupRange | None = None) -> dict[Any, Any]:
    """{(state, key, namespace): (key group, content)}, timer queues as states named "queue …"."""
    wanted = backend.context.key_group_range if groups is None else groups
    tables = dict(backend.registered_kv_states)
    tables.update({f"queue {name}": backend.get_timer_queue(name).table for name in QUEUES})
    found: dict[Any, Any] = {}
    for name, table in tables.items():
        for group, map in table.used_maps():
            if group in wanted:
                for key, namespace, content in map:
                    assert (name, key, namespace) not in found
                    found[name, key, namespace] = (group, content)
    return found


def handle(backend: KeyedStateBackend, name: str, namespace: Any = "") -> Any:
    """A state of the backend."""
    if name == "window" and namespace == "":
        namespace = (0, 10)
    return backend.get_partitioned_state(DESCRIPTORS[name], namespace, namespace_type=NAMESPACE_TYPES.get(name, str))


KEYS = st.one_of(st.sampled_from(["ann", "bob", "", "é", "k" * 40]), st.text(max_size=2).filter(lambda t: t.isascii()))
INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
USER_KEYS = st.text(alphabet="abc", max_size=2)
NAMESPACES = st.sampled_from(["", "w1", "w2"])


def _step(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(name), KEYS, NAMESPACES, *arguments)


TEXTS = st.text(alphabet="xyé", max_size=40)
STEPS = st.one_of(
    _step("total", INTS),
    _step("profile", TEXTS, st.lists(TEXTS, max_size=2), st.none() | st.floats(allow_nan=False)),
    _step("change profile", TEXTS),
    _step("window", st.integers(-5, 5), st.floats(allow_nan=False)),
    _step("visits", st.lists(TEXTS, max_size=3)),
    _step("drafts", st.lists(st.lists(INTS, max_size=2), max_size=2)),
    _step("replace visits", st.lists(TEXTS, max_size=3)),
    _step("seen", USER_KEYS, st.none() | INTS),
    _step("seen many", st.integers(0, 14)),
    _step("unsee", USER_KEYS),
    _step("notes", st.integers(0, 3), USER_KEYS, st.dictionaries(USER_KEYS, st.binary(max_size=3), max_size=2)),
    _step("best", INTS),
    _step("mean", st.integers(-100, 100)),
    _step("last", st.binary(max_size=4)),
    _step("ages", st.integers(-2, 2), TEXTS),
    _step("log", st.lists(st.integers(-5, 5), max_size=3)),
    _step("clear", st.sampled_from(sorted(set(DESCRIPTORS) - {"window"}))),
    _step("timer", st.sampled_from(QUEUES), st.integers(-5, 5), st.sampled_from(["a", "b"])),
    _step("delete timer", st.sampled_from(QUEUES), st.integers(-5, 5), st.sampled_from(["a", "b"])),
    _step("poll", st.sampled_from(QUEUES), st.integers(-5, 5)),
    _step("time passes", st.integers(0, 1000)),
)


def do(backend: KeyedStateBackend, step: tuple[Any, ...]) -> None:
    """Carry out one of `STEPS`; keys of other slots are left alone.

    A later step may change in place what this one stores, and the same steps are carried out again: they store copies.
    """
    what, key, namespace, *arguments = copy.deepcopy(step)
    if backend.context.grouper(key) not in backend.context.key_group_range:
        return
    backend.set_current_key(key)
    match what:
        case "total" | "last":
            handle(backend, what, namespace).update(arguments[0])
        case "profile":
            handle(backend, what, namespace).update(Profile(*arguments))
        case "change profile":
            profile = handle(backend, "profile", namespace).value()
            if profile is not None:
                profile.tags.append(arguments[0])
        case "window":
            handle(backend, what, (arguments[0], arguments[0] + 10)).update(arguments[1])
        case "visits" | "drafts" | "log":
            handle(backend, what, namespace).add_all(arguments[0])
        case "replace visits":
            handle(backend, "visits", namespace).update(arguments[0])
        case "seen" | "ages":
            handle(backend, what, namespace).put(*arguments)
        case "seen many":
            handle(backend, "seen", namespace).put_all({f"u{i}": i for i in range(arguments[0])})
        case "unsee":
            handle(backend, "seen", namespace).remove(arguments[0])
        case "notes":
            handle(backend, what, namespace).put((arguments[0], arguments[1]), arguments[2])
        case "best" | "mean":
            handle(backend, what, namespace).add(arguments[0])
        case "clear":
            handle(backend, arguments[0], namespace).clear()
        case "timer":
            backend.get_timer_queue(arguments[0]).register(arguments[1], arguments[2], namespace)
        case "delete timer":
            backend.get_timer_queue(arguments[0]).delete(arguments[1], arguments[2], namespace)
        case "poll":
            backend.get_timer_queue(arguments[0]).poll(arguments[1])
        case "time passes":
            backend.ttl_clock.processing_time = (backend.ttl_clock.processing_time or 0) + arguments[0]
        case _:
            raise AssertionError(what)
