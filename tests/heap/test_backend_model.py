"""The whole heap backend against plain dicts: every kind of state, loans, expiry, timers, points in time.

The model of a state is (key, namespace) → content. A value that can change and that was read or handed in
stays attached to its place in the model, and a change to it counts, until it is replaced, removed or taken
back.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberstate.heap import ttl_sweep
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable, StateTable
from emberstate.keygroups import KeySchema
from emberstate.state.changes import ABSENT, apply_ops
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_snapshot import KeyedStateSnapshot
from emberstate.state.timers import Timer
from emberstate.state.ttl.config import TtlConfig, TtlUpdate
from emberstate.state.ttl.stamped import Stamped
from tests.effort import examples
from tests.heap.conftest import COMPILED
from tests.state.support import Collect, Mean, Profile, extend

LIFE = 10
TTL = TtlConfig(timedelta(microseconds=LIFE))
TTL_ON_READ = TtlConfig(timedelta(microseconds=LIFE), update=TtlUpdate.ON_READ_AND_WRITE)

DESCRIPTORS: dict[str, StateDescriptor] = {
    descriptor.name: descriptor
    for descriptor in (
        ValueStateDescriptor("number", int),
        ValueStateDescriptor("numbers", list[int]),
        ValueStateDescriptor("profile", Profile),
        ListStateDescriptor("elements", int),
        ListStateDescriptor("lists", list[int]),
        MapStateDescriptor("pairs", int, int),
        MapStateDescriptor("pairs-of-lists", int, list[int]),
        ReducingStateDescriptor("sum", lambda old, new: old + new, int),
        ReducingStateDescriptor("joined", extend, list[int]),
        AggregatingStateDescriptor("mean", Mean(), tuple[float, int]),
        AggregatingStateDescriptor("collected", Collect(), list[int]),
        ValueStateDescriptor("ttl-number", int, ttl=TTL),
        ValueStateDescriptor("ttl-numbers", list[int], ttl=TTL_ON_READ),
        ListStateDescriptor("ttl-elements", int, ttl=TTL_ON_READ),
        MapStateDescriptor("ttl-pairs", int, int, ttl=TTL),
    )
}
FREE = [name for name in DESCRIPTORS if not name.startswith("ttl-")]

#: key, namespace
Place = tuple[str, str]
#: state, key, namespace, and what leads to the value within the entry
Path = tuple[Any, ...]

#: Elements of a list that a clean-up looks at in one step, here.
FEW = 3

ALL_PLACES: list[Place] = [(key, namespace) for key in "abcde" for namespace in ("", "w")]

places = st.runner().flatmap(lambda machine: st.sampled_from(machine.used_places))
user_keys = st.integers(0, 11)
numbers = st.integers(0, 99).filter(lambda number: number not in (13, 66))  # the functions raise for these
timer_times = st.integers(-3, 8)
timer_names = st.sampled_from(["x", "y"])


@dataclasses.dataclass
class Content:
    """What everything holds at one point in time."""

    states: dict[str, dict[Place, Any]]
    timers: dict[str, set[tuple[int, str, str]]]


@dataclasses.dataclass
class Taken:
    """A live snapshot, what it must show, and which entries were written to since."""

    snapshot: KeyedStateSnapshot
    content: Content
    registered: tuple[str, ...]
    written: set[tuple[str, str, str]]


def plain(content: Any) -> Any:
    """Content as the model has it: stamped values as pairs."""
    if isinstance(content, Stamped):
        return content.value, content.stamp
    if isinstance(content, list) and content and isinstance(content[0], Stamped):
        return [plain(element) for element in content]
    if isinstance(content, dict):
        return {key: plain(value) for key, value in content.items()}
    return content


@pytest.fixture(scope="module", autouse=True)
def short_steps() -> Iterator[None]:
    """Let what is long and large for a clean-up begin early."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ttl_sweep, "ELEMENTS", FEW)
        patch.setattr(ttl_sweep, "BUCKETS", 2)
        yield


def parts_of(content: Any) -> dict[Any, Any]:
    """The (value, stamp) pairs of expiring content, by user key or position."""
    if isinstance(content, list):
        return dict(enumerate(content))
    return content if isinstance(content, dict) else {None: content}


def missing(old: Any, new: Any) -> list[Any]:
    """The (value, stamp) pairs that were in `old` and are not in `new`, which must have nothing else."""
    if not isinstance(old, list):
        after = {} if new is None else parts_of(new)
        before = parts_of(old)
        assert after == {key: before[key] for key in after}
        return [pair for key, pair in before.items() if key not in after]
    left = iter([] if new is None else new)
    following = next(left, None)
    gone = []
    for pair in old:
        if pair == following:
            following = next(left, None)
        else:
            gone.append(pair)
    assert following is None, "elements that were not there, or in another order"
    return gone


class BackendMachine(RuleBasedStateMachine):
    """A backend and its model, driven alike."""

    table_type: type[StateTable] = CopyOnWriteStateTable
    used_places = ALL_PLACES

    def __init__(self) -> None:
        super().__init__()
        self.backend = self.make_backend()
        self.now = 0
        self.backend.ttl_clock.processing_time = 0
        self.content = Content({name: {} for name in DESCRIPTORS}, {})
        self.taken: list[Taken] = []
        self.attached: dict[Path, Any] = {}
        self.kept: list[tuple[Path, Any]] = []  # everything that the caller ever held
        self.queue = self.backend.get_timer_queue("timers")

    def make_backend(self) -> Any:
        """A backend with four key groups."""
        return HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4, table_type=self.table_type)

    # -- helpers ---------------------------------------------------------------------------------------------

    def at(self, name: str, place: Place) -> tuple[Any, dict[Place, Any]]:
        """The handle on a state with the current key set, and the model of the state."""
        self.backend.set_current_key(place[0])
        return self.backend.get_partitioned_state(DESCRIPTORS[name], place[1]), self.content.states[name]

    def wrote(self, name: str, place: Place) -> None:
        """Note that an entry was written to."""
        for taken in self.taken:
            taken.written.add((name, *place))

    def detach(self, *path: Any) -> None:
        """Note that what was handed out from this place, or within it, is the state's no more."""
        for other in [other for other in self.attached if other[: len(path)] == path]:
            del self.attached[other]

    def attach(self, value: Any, *path: Any) -> None:
        """Note that the caller holds the value at this place."""
        self.attached[path] = value
        self.kept.append((path, value))

    def take_back(self) -> None:
        """What happens to everything attached when a snapshot is taken or changes are listed."""
        self.attached.clear()

    def change(self, value: Any, number: int) -> None:
        """Change a list or profile in place."""
        if isinstance(value, Profile):
            value.visits += number + 1
            value.tags.append(str(number))
        else:
            value.append(number)

    # -- values ----------------------------------------------------------------------------------------------

    @rule(place=places, value=numbers | st.none())
    def update_number(self, place: Place, value: int | None) -> None:
        """Write a value that cannot change; None clears."""
        state, model = self.at("number", place)
        state.update(value)
        if value is None:
            model.pop(place, None)
        else:
            model[place] = value
        self.wrote("number", place)

    @rule(place=places)
    def read_number(self, place: Place) -> None:
        """Read a value that cannot change."""
        state, model = self.at("number", place)
        assert state.value() == model.get(place)

    @rule(place=places, value=st.lists(numbers, max_size=3))
    def update_numbers(self, place: Place, value: list[int]) -> None:
        """Hand in a list."""
        state, model = self.at("numbers", place)
        state.update(value)
        model[place] = list(value)
        self.attach(value, "numbers", *place)
        self.wrote("numbers", place)

    @rule(place=places, visits=numbers)
    def update_profile(self, place: Place, visits: int) -> None:
        """Hand in a dataclass object."""
        state, model = self.at("profile", place)
        value = Profile(visits)
        state.update(value)
        model[place] = Profile(visits)
        self.attach(value, "profile", *place)
        self.wrote("profile", place)

    @rule(place=places, name=st.sampled_from(["numbers", "profile"]), again=st.booleans())
    def read_mutable(self, place: Place, name: str, again: bool) -> None:
        """Read a value that can change, and perhaps hand it in again as it is."""
        state, model = self.at(name, place)
        value = state.value()
        assert value == model.get(place)
        if value is not None:
            if (name, *place) in self.attached:
                assert value is self.attached[name, *place]  # one object within a transaction
            self.attach(value, name, *place)
            if again:
                state.update(value)

    @rule(name=st.sampled_from(FREE), place=places)
    def clear(self, name: str, place: Place) -> None:
        """Remove an entry of any kind."""
        state, model = self.at(name, place)
        state.clear()
        if model.pop(place, None) is not None:
            self.wrote(name, place)
        self.detach(name, *place)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), number=numbers)
    def change_what_is_held(self, data: st.DataObject, number: int) -> None:
        """Change something that was read or handed in at any time: it counts only while it is attached."""
        path, value = data.draw(st.sampled_from(self.kept[-12:]), label="held")
        self.change(value, number)
        if self.attached.get(path) is not value:
            return
        name, key, namespace, *within = path
        model = self.content.states[name][key, namespace]
        if name == "ttl-numbers":
            model = model[0]
        for step in within:
            model = model[step]
        self.change(model, number)
        self.wrote(name, (key, namespace))

    # -- lists -----------------------------------------------------------------------------------------------

    @rule(place=places, elements=st.lists(numbers, max_size=4), replace=st.booleans())
    def write_elements(self, place: Place, elements: list[int], replace: bool) -> None:
        """Append to a list, or replace it."""
        state, model = self.at("elements", place)
        old = model.pop(place, [])
        new = elements if replace else old + elements
        if replace:
            state.update(elements)
        elif len(elements) == 1:
            state.add(elements[0])
        else:
            state.add_all(elements)
        if new:
            model[place] = list(new)
        assert state.get() == new
        assert len(state) == len(new)
        self.wrote("elements", place)

    @rule(place=places, element=st.lists(numbers, max_size=2), replace=st.booleans())
    def write_lists(self, place: Place, element: list[int], replace: bool) -> None:
        """Hand an element that can change to a list."""
        state, model = self.at("lists", place)
        if replace:
            self.detach("lists", *place)
            state.update([element])
            model[place] = [list(element)]
        else:
            state.add(element)
            model.setdefault(place, []).append(list(element))
        self.attach(element, "lists", *place, len(model[place]) - 1)
        self.wrote("lists", place)

    @rule(place=places)
    def read_lists(self, place: Place) -> None:
        """Read a list; what it hands out are copies."""
        state, model = self.at("lists", place)
        elements = state.get()
        assert elements == model.get(place, [])
        for element in elements:
            element.append(-1)

    @rule(
        name=st.sampled_from(["elements", "lists"]),
        key=st.sampled_from("abcde"),
        to=st.sampled_from(["", "w"]),
    )
    def merge_lists(self, name: str, key: str, to: str) -> None:
        """Merge one namespace into the other, or into itself."""
        self.backend.set_current_key(key)
        self.backend.get_internal_state(DESCRIPTORS[name]).merge_namespaces(to, ["w"])
        model = self.content.states[name]
        moved = model.pop((key, "w"), [])
        if moved:
            model[key, to] = model.get((key, to), []) + moved
            self.detach(name, key, "w")
            self.wrote(name, (key, "w"))
            self.wrote(name, (key, to))

    # -- maps ------------------------------------------------------------------------------------------------

    @rule(place=places, user_key=user_keys, value=numbers | st.none())
    def put_pair(self, place: Place, user_key: int, value: int | None) -> None:
        """Put one user value, which may be None."""
        state, model = self.at("pairs", place)
        state[user_key] = value
        model.setdefault(place, {})[user_key] = value
        self.wrote("pairs", place)

    @rule(place=places, start=user_keys, count=st.integers(0, 12), value=numbers)
    def put_pairs(self, place: Place, start: int, count: int, value: int) -> None:
        """Put enough user values to make a small map large."""
        state, model = self.at("pairs", place)
        pairs = dict.fromkeys(range(start, start + count), value)
        state.put_all(pairs)
        if pairs:
            model.setdefault(place, {}).update(pairs)
        self.wrote("pairs", place)

    @rule(
        name=st.sampled_from(["pairs", "pairs-of-lists"]),
        place=places,
        user_key=user_keys,
        count=st.integers(1, 12),
    )
    def remove_pairs(self, name: str, place: Place, user_key: int, count: int) -> None:
        """Remove user keys, perhaps the last ones."""
        state, model = self.at(name, place)
        pairs = model.get(place, {})
        for gone in range(user_key, user_key + count):
            assert state.contains(gone) == (gone in pairs)
            state.remove(gone)
            if gone in pairs:
                del pairs[gone]
                self.wrote(name, place)
            self.detach(name, *place, gone)
        if not pairs:
            model.pop(place, None)

    @rule(place=places, user_key=user_keys, value=st.lists(numbers, max_size=2) | st.none())
    def put_list(self, place: Place, user_key: int, value: list[int] | None) -> None:
        """Hand in a user value that can change, or None."""
        state, model = self.at("pairs-of-lists", place)
        state[user_key] = value
        model.setdefault(place, {})[user_key] = copy.copy(value)
        if value is None:
            self.detach("pairs-of-lists", *place, user_key)
        else:
            self.attach(value, "pairs-of-lists", *place, user_key)
        self.wrote("pairs-of-lists", place)

    @rule(place=places, user_key=user_keys)
    def read_list(self, place: Place, user_key: int) -> None:
        """Read a user value that can change."""
        state, model = self.at("pairs-of-lists", place)
        value = state.get(user_key)
        assert value == model.get(place, {}).get(user_key)
        if value is not None:
            self.attach(value, "pairs-of-lists", *place, user_key)

    @rule(name=st.sampled_from(["pairs", "pairs-of-lists"]), place=places)
    def walk_pairs(self, name: str, place: Place) -> None:
        """Iterate; what iteration hands out are copies."""
        state, model = self.at(name, place)
        pairs = model.get(place, {})
        assert len(state) == len(pairs)
        assert set(state) == set(pairs)
        found = dict(state.items())
        assert found == pairs
        for value in found.values():
            if isinstance(value, list):
                value.append(-1)

    # -- folding ---------------------------------------------------------------------------------------------

    @rule(place=places, value=numbers)
    def fold(self, place: Place, value: int) -> None:
        """Add to the folding states that hand nothing out."""
        folds: dict[str, tuple[Any, Callable[[Any], Any]]] = {
            "sum": (value, lambda old: value if old is None else old + value),
            "mean": (float(value), lambda old: (value, 1) if old is None else (old[0] + value, old[1] + 1)),
            "collected": (value, lambda old: [value] if old is None else [*old, value]),
        }
        for name, (added, folded) in folds.items():
            state, model = self.at(name, place)
            state.add(added)
            model[place] = folded(model.get(place))
            self.wrote(name, place)
        mean, model = self.at("mean", place)
        assert mean.get() == model[place][0] / model[place][1]
        collected, model = self.at("collected", place)
        assert collected.get() == sorted(model[place])

    @rule(place=places, value=st.lists(numbers, min_size=1, max_size=2))
    def join(self, place: Place, value: list[int]) -> None:
        """Hand a list to a reducing state: the first is kept as it is, a later one goes into a copy."""
        state, model = self.at("joined", place)
        state.add(value)
        self.detach("joined", *place)
        if place in model:
            model[place] = model[place] + value
        else:
            model[place] = list(value)
            self.attach(value, "joined", *place)
        self.wrote("joined", place)

    @rule(place=places)
    def read_joined(self, place: Place) -> None:
        """Read a folded value that can change."""
        state, model = self.at("joined", place)
        value = state.get()
        assert value == model.get(place)
        if value is not None:
            self.attach(value, "joined", *place)

    @rule(place=places)
    def fold_and_fail(self, place: Place) -> None:
        """A function that raises, after it has changed what it was given, has changed nothing."""
        for name, bad in (("joined", [13]), ("collected", 13), ("mean", -1.0)):
            state, model = self.at(name, place)
            if name == "joined" and place not in model:
                continue  # the first value is stored without asking the function
            try:
                state.add(bad)
            except ValueError:
                continue
            raise AssertionError(f"{name} did not raise")

    # -- time to live ----------------------------------------------------------------------------------------

    @rule(by=st.integers(1, LIFE + 2))
    def pass_time(self, by: int) -> None:
        """Let time pass."""
        self.now += by
        self.backend.ttl_clock.processing_time = self.now

    def living(self, stamp: int) -> bool:
        """Whether something has not expired."""
        return stamp + LIFE > self.now

    @rule(place=places, value=numbers)
    def write_ttl_number(self, place: Place, value: int) -> None:
        """Write a value that expires."""
        state, model = self.at("ttl-number", place)
        state.update(value)
        model[place] = (value, self.now)
        self.wrote("ttl-number", place)

    @rule(place=places)
    def read_ttl_number(self, place: Place) -> None:
        """Read a value that expires; expired, it is removed."""
        state, model = self.at("ttl-number", place)
        value, stamp = model.get(place, (None, self.now))
        if not self.living(stamp):
            value = None
            del model[place]
            self.wrote("ttl-number", place)
        assert state.value() == value

    @rule(place=places, value=st.lists(numbers, max_size=2))
    def write_ttl_numbers(self, place: Place, value: list[int]) -> None:
        """Hand in a list that expires."""
        state, model = self.at("ttl-numbers", place)
        state.update(value)
        model[place] = (list(value), self.now)
        self.attach(value, "ttl-numbers", *place)
        self.wrote("ttl-numbers", place)

    @rule(place=places)
    def read_ttl_numbers(self, place: Place) -> None:
        """Read a list that expires; read, it is young again."""
        state, model = self.at("ttl-numbers", place)
        value = state.value()
        if place not in model:
            assert value is None
            return
        expected, stamp = model.pop(place)
        if stamp < self.now:
            self.wrote("ttl-numbers", place)
        if self.living(stamp):
            assert value == expected
            model[place] = (expected, self.now)
            self.attach(value, "ttl-numbers", *place)
        else:
            assert value is None
            self.detach("ttl-numbers", *place)

    @rule(place=places, elements=st.lists(numbers, min_size=1, max_size=3))
    def write_ttl_elements(self, place: Place, elements: list[int]) -> None:
        """Append elements that expire one by one."""
        state, model = self.at("ttl-elements", place)
        state.add_all(elements)
        model.setdefault(place, []).extend((element, self.now) for element in elements)
        self.wrote("ttl-elements", place)

    @rule(place=places)
    def read_ttl_elements(self, place: Place) -> None:
        """Read elements that expire; those that live are young again."""
        state, model = self.at("ttl-elements", place)
        old = model.pop(place, [])
        new = [(element, self.now) for element, stamp in old if self.living(stamp)]
        assert len(state) == len(new)
        assert state.get() == [element for element, _ in new]
        if new:
            model[place] = new
        if new != old:
            self.wrote("ttl-elements", place)

    @rule(place=places, start=user_keys, count=st.integers(1, 12), value=numbers | st.none())
    def write_ttl_pairs(self, place: Place, start: int, count: int, value: int | None) -> None:
        """Put user values that expire one by one."""
        state, model = self.at("ttl-pairs", place)
        for user_key in range(start, start + count):
            state[user_key] = value
            model.setdefault(place, {})[user_key] = (value, self.now)
        self.wrote("ttl-pairs", place)

    @rule(place=places, user_key=user_keys, walk=st.booleans())
    def read_ttl_pairs(self, place: Place, user_key: int, walk: bool) -> None:
        """Read one user value that expires, or all; what is found expired is removed."""
        state, model = self.at("ttl-pairs", place)
        pairs = model.get(place, {})
        living = {key: value for key, (value, stamp) in pairs.items() if self.living(stamp)}
        assert len(state) == len(living)
        if walk:
            assert dict(state.items()) == living
            gone = [key for key in pairs if key not in living]
        else:
            assert state.get(user_key, -1) == living.get(user_key, -1)
            gone = [user_key] if user_key in pairs and user_key not in living else []
        for key in gone:
            del pairs[key]
            self.wrote("ttl-pairs", place)
        if not pairs:
            model.pop(place, None)

    @rule(budget=st.integers(1, 40))
    def clean_up(self, budget: int) -> None:
        """Clean up a little: nothing but what has expired may go, and what goes is counted."""
        self.follow_clean_up(self.backend.clean_up(budget))

    @rule()
    def clean_up_everything(self) -> None:
        """Clean up all: what stays of the expired is the smaller part of a long list."""
        self.follow_clean_up(self.backend.clean_up(10**6))
        for name in self.backend.registered_kv_states:
            for content in self.content.states[name].values() if name.startswith("ttl-") else ():
                stamps = [stamp for _, stamp in parts_of(content).values()]
                expired = sum(not self.living(stamp) for stamp in stamps)
                assert expired == 0 or (isinstance(content, list) and len(stamps) > FEW and 2 * expired < len(stamps))

    def follow_clean_up(self, removed: int) -> None:
        """Take what is gone out of the model, if it may be."""
        for name, table in self.backend.registered_kv_states.items():
            if not name.startswith("ttl-"):
                continue
            found = {(key, namespace): plain(content) for key, namespace, content in table}
            model = self.content.states[name]
            assert set(found) <= set(model)
            for place, old in list(model.items()):
                new = found.get(place)
                gone = missing(old, new)
                assert not any(self.living(stamp) for _, stamp in gone)
                removed -= len(gone)
                if gone:
                    self.wrote(name, place)
                if new is None:
                    del model[place]
                    self.detach(name, *place)
                else:
                    model[place] = new
        assert removed == 0

    # -- timers ----------------------------------------------------------------------------------------------

    @rule(place=places, time=timer_times, name=timer_names)
    def register_timer(self, place: Place, time: int, name: str) -> None:
        """Register a timer, perhaps once more."""
        key, namespace = place
        self.backend.set_current_key(key)
        timers = self.content.timers.setdefault(key, set())
        assert self.queue.register(time, name, namespace) == ((time, name, namespace) not in timers)
        timers.add((time, name, namespace))

    @rule(place=places, time=timer_times, name=timer_names, again=st.booleans())
    def delete_timer(self, place: Place, time: int, name: str, again: bool) -> None:
        """Delete a timer, perhaps one that is not there, and perhaps register it again."""
        key, namespace = place
        self.backend.set_current_key(key)
        timers = self.content.timers.setdefault(key, set())
        assert self.queue.delete(time, name, namespace) == ((time, name, namespace) in timers)
        timers.discard((time, name, namespace))
        if again:
            self.register_timer(place, time, name)

    def ordered_timers(self) -> list[Timer]:
        """All timers in firing order."""
        return sorted(
            Timer(time, key, name, namespace)
            for key, timers in self.content.timers.items()
            for time, name, namespace in timers
        )

    @rule(until=timer_times, count=st.integers(1, 6))
    def poll_timers(self, until: int, count: int) -> None:
        """Fire some timers."""
        for _ in range(count):
            expected = next((timer for timer in self.ordered_timers() if timer.time <= until), None)
            assert self.queue.poll(until) == expected
            if expected is None:
                return
            assert self.backend.current_key == expected.key
            self.content.timers[expected.key].discard((expected.time, expected.name, str(expected.namespace)))

    @rule(key=st.sampled_from("abcde"))
    def look_at_timers(self, key: str) -> None:
        """Look at the next timer and at those of a key."""
        everything = self.ordered_timers()
        assert self.queue.peek() == (everything[0] if everything else None)
        assert len(self.queue) == len(everything)
        self.backend.set_current_key(key)
        assert self.queue.timers_of_current_key() == [timer for timer in everything if timer.key == key]

    # -- points in time --------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.taken) < 4)
    @rule()
    def take_snapshot(self) -> None:
        """Take a snapshot."""
        self.taken.append(
            Taken(
                self.backend.snapshot(),
                copy.deepcopy(self.content),
                tuple(self.backend.registered_kv_states),
                set(),
            )
        )
        self.take_back()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def release_snapshot(self, data: st.DataObject) -> None:
        """Release any snapshot."""
        taken = data.draw(st.sampled_from(self.taken), label="released")
        self.taken.remove(taken)
        taken.snapshot.release()

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def read_snapshot(self, data: st.DataObject) -> None:
        """Read a snapshot completely."""
        self.compare(data.draw(st.sampled_from(self.taken), label="read"))

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Roll back to any live snapshot, the newest or an older one, or from one to the other."""
        for target in data.draw(st.lists(st.sampled_from(self.taken), min_size=1, max_size=3), label="to"):
            self.roll_back_to(target)
            self.content_is_the_models()

    def roll_back_to(self, target: Taken) -> None:
        """Roll back to one snapshot."""
        self.backend.roll_back(target.snapshot)
        self.content = copy.deepcopy(target.content)
        self.take_back()
        assert self.backend.current_key is None
        for taken in self.taken:
            if taken is target:
                taken.written = set()
            else:
                taken.written.update((name, *place) for name in DESCRIPTORS for place in ALL_PLACES)

    @rule()
    def commit(self) -> None:
        """List what changed, as a commit does."""
        self.check_changes()

    def check_changes(self) -> None:
        """For every live snapshot, the old content and what is listed are the content now."""
        for taken in self.taken:
            states = copy.deepcopy(taken.content.states)
            for name, group, (key, namespace, ops) in self.backend.changes(taken.snapshot):
                assert (name, key, namespace) in taken.written, "listed, though only read"
                assert group == self.backend.context.key_schema.key_group(key, 4)
                old = states[name].get((key, namespace), ABSENT)
                new = apply_ops(old, [plain_step(step) for step in ops])
                if new is ABSENT:
                    states[name].pop((key, namespace), None)
                else:
                    states[name][key, namespace] = new
            assert states == self.content.states
            timers: dict[str, Any] = {
                key: dict.fromkeys(timers, True) for key, timers in taken.content.timers.items() if timers
            }
            for _, _, (key, _, ops) in self.backend.timer_changes(taken.snapshot):
                timers[key] = apply_ops(timers.get(key, ABSENT), ops)
            assert {key: set(found) for key, found in timers.items() if found} == {
                key: found for key, found in self.content.timers.items() if found
            }
            self.take_back()

    def compare(self, taken: Taken) -> None:
        """A snapshot shows what was there when it was taken."""
        for name in DESCRIPTORS:
            if name not in taken.registered:
                assert taken.content.states[name] == {}
                continue
            found = {
                (key, namespace): plain(content)
                for group in range(4)
                for key, namespace, content in taken.snapshot.entries(name, group)
            }
            assert found == taken.content.states[name], name
        timers = {key: set(content) for group in range(4) for key, _, content in taken.snapshot.timers("timers", group)}
        assert timers == {key: found for key, found in taken.content.timers.items() if found}

    @invariant()
    def content_is_the_models(self) -> None:
        """Live content, looked at without touching it, is the model's, and nothing is broken."""
        for name, table in self.backend.registered_kv_states.items():
            found = {(key, namespace): plain(content) for key, namespace, content in table}
            assert found == self.content.states[name], name
        self.backend.check_invariants()

    def teardown(self) -> None:
        """Whatever happened, all that is still live is right."""
        for taken in self.taken:
            self.compare(taken)
        self.check_changes()


def plain_step(step: tuple[Any, ...]) -> tuple[Any, ...]:
    """A step of a change record with content as the model has it."""
    op, *operands = step
    return op, *(plain(operand) for operand in operands)


class NestedBackendMachine(BackendMachine):
    """The same with nested maps."""

    table_type = NestedMapsStateTable


def only(machine: type[BackendMachine], places: int, *kept: str) -> type[BackendMachine]:
    """The machine with a few places and rules: what they do together is then tried much more often."""
    members: dict[str, Any] = {rule.function.__name__: None for rule in machine().rules}
    for name in kept:
        del members[name]
    return type(f"Few{machine.__name__}", (machine,), {**members, "used_places": ALL_PLACES[:places]})


#: Points in time above all: many branches, with little in them.
BRANCHES = (
    "write_elements",
    "put_pairs",
    "register_timer",
    "poll_timers",
    "take_snapshot",
    "release_snapshot",
    "roll_back",
    "commit",
)
#: What callers hold above all.
LOANS = (
    "update_numbers",
    "read_mutable",
    "write_lists",
    "put_list",
    "read_list",
    "join",
    "read_joined",
    "read_ttl_numbers",
    "write_ttl_numbers",
    "change_what_is_held",
    "take_snapshot",
    "release_snapshot",
    "roll_back",
    "commit",
)
#: Expiry above all.
EXPIRY = (
    "write_ttl_number",
    "write_ttl_numbers",
    "read_ttl_numbers",
    "change_what_is_held",
    "write_ttl_elements",
    "write_ttl_pairs",
    "read_ttl_pairs",
    "pass_time",
    "clean_up",
    "clean_up_everything",
    "take_snapshot",
    "release_snapshot",
    "roll_back",
    "commit",
)

TestCopyOnWriteBackend = BackendMachine.TestCase
TestNestedBackend = NestedBackendMachine.TestCase
TestCopyOnWriteBranches = only(BackendMachine, 1, *BRANCHES).TestCase
TestNestedBranches = only(NestedBackendMachine, 1, *BRANCHES).TestCase
TestCopyOnWriteLoans = only(BackendMachine, 2, *LOANS).TestCase
TestNestedLoans = only(NestedBackendMachine, 2, *LOANS).TestCase
TestCopyOnWriteExpiry = only(BackendMachine, 2, *EXPIRY).TestCase
TestNestedExpiry = only(NestedBackendMachine, 2, *EXPIRY).TestCase
for _case, _examples in (
    (TestCopyOnWriteBackend, 100),
    (TestNestedBackend, 40),
    (TestCopyOnWriteBranches, 150),
    (TestNestedBranches, 50),
    (TestCopyOnWriteLoans, 100),
    (TestNestedLoans, 40),
    (TestCopyOnWriteExpiry, 150),
    (TestNestedExpiry, 50),
):
    _case.settings = settings(max_examples=examples(_examples if COMPILED else _examples // 6), stateful_step_count=50)
del _case  # or it is collected as a test
