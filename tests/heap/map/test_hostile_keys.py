"""Keys and values whose own code uses the state that is looking at them: refused, and never the end of the process.

Each case runs in a process of its own, which a crash would end; it fuzzes, for what a crash needs is chance.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from emberstate.errors import LifecycleError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
from emberstate.heap.map.nested_state_map import NestedStateMap
from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from tests.raising import raising

NS = "ns"
ROUNDS = 100

#: What a class's own code does, and how often it was refused.
attack: Callable[[], object] | None = None
refused = 0


def strike() -> None:
    """Do what the attack is, once per call of a hook; a refusal is swallowed, as a careless class would."""
    global attack, refused
    now, attack = attack, None
    if now is not None:
        try:
            now()
        except LifecycleError as error:
            assert "`__eq__`" in str(error)
            refused += 1
        attack = now


class Hostile:
    """A key with few hashes, whose `==` and hash strike."""

    def __init__(self, number: int, strikes_in: str) -> None:
        self.number = number
        self.strikes_in = strikes_in

    def __hash__(self) -> int:
        if self.strikes_in == "hash":
            strike()
        return self.number % 3

    def __eq__(self, other: object) -> bool:
        if self.strikes_in == "eq":
            strike()
        return isinstance(other, Hostile) and self.number == other.number


class Fickle(Hostile):
    """A key that is equal or not as chance has it."""

    __hash__ = Hostile.__hash__

    def __eq__(self, other: object) -> bool:
        return random.random() < 0.5


class Dying:
    """A value that strikes when it goes."""

    def __del__(self) -> None:
        strike()


def attacks(states: Any, key: Any) -> list[Callable[[], object]]:
    """Every way to change a map, and to read it."""
    point = states.registry.snapshot()

    def shrink() -> None:
        for other, namespace, _ in list(states):
            states.remove(other, namespace)

    def grow() -> None:
        for number in range(100):
            states.put(number, "another", [number])

    return [
        shrink,
        grow,
        lambda: states.put(key, NS, [0]),
        lambda: states.remove(key, NS),
        lambda: states.get(key, NS),
        lambda: states.snapshot().release(),
        lambda: states.changes(point),
        lambda: states.roll_back(point),
        lambda: point.release(),
        lambda: list(states),
    ]


def uses(states: Any, key: Any, snapshot: Any) -> list[Callable[[], object]]:
    """Every operation that looks a key up."""
    return [
        lambda: states.get(key, NS),
        lambda: states.peek(key, NS),
        lambda: states.contains_key(key, NS),
        lambda: states.put(key, NS, [1]),
        lambda: states.put_and_get_old(key, NS, [2]),
        lambda: states.remove(key, NS),
        lambda: states.remove_and_get_old(key, NS),
        lambda: states.transform(key, NS, 3, lambda old, new: [new]),
        lambda: list(states),
        lambda: list(states.keys(NS)),
        lambda: states.changes(snapshot),
        lambda: states.roll_back(snapshot),
        lambda: snapshot.get(key, NS),
    ]


def copying(value: list[Any]) -> list[Any]:
    """A copier that strikes."""
    strike()
    return list(value)


def comparing(one: list[Any], other: list[Any]) -> bool:
    """A comparer that strikes."""
    strike()
    return one == other


def fuzz_maps(strikes_in: str) -> None:
    """Random programs over maps of hostile keys, or of values whose copying and comparing strikes."""
    global attack
    chance = random.Random(strikes_in)
    kind = MutableKind(copying, comparing) if strikes_in == "copy" else IMMUTABLE
    key_type = Fickle if strikes_in == "chance" else Hostile
    for _ in range(ROUNDS):
        attack = None
        states = CopyOnWriteStateMap(kind)
        keys = [key_type(number, strikes_in) for number in range(chance.randrange(1, 40))]
        for key in keys:
            states.put(key, NS, [0])
        live = [states.snapshot() for _ in range(chance.randrange(1, 3))]
        for _ in range(20):
            wanted = key_type(chance.randrange(50), strikes_in)  # equal to one that is there, not the same
            attack = chance.choice(attacks(states, chance.choice(keys)))
            try:
                chance.choice(uses(states, wanted, chance.choice(live)))()
            except LifecycleError:
                pass
            except RuntimeError as error:
                assert "during iteration" in str(error), error
            attack = None
            if key_type is Hostile:
                states.check_invariants()


def fuzz_map_state(strikes_in: str) -> None:
    """The same over a map state, small and large, with hostile user keys."""
    chance = random.Random(strikes_in)
    for _ in range(ROUNDS):
        hostile_map_state(chance, strikes_in)


def hostile_map_state(chance: random.Random, strikes_in: str) -> None:
    """One program over a map state."""
    global attack
    backend = HeapKeyedStateBackend(KeySchema.from_python(str))
    backend.set_current_key("ann")
    handle = backend.get_internal_state(MapStateDescriptor("m", int, int))  # which checks no types
    value = backend.get_partitioned_state(ValueStateDescriptor("v", int))
    size = chance.choice([3, 40])
    attack = None
    for number in range(size):
        handle.put(Hostile(number, strikes_in), number)
    with backend.snapshot() as before:
        strikes = [
            handle.clear,
            backend.close,
            partial(value.update, 1),
            partial(handle.put, 99, 99),
            partial(backend.roll_back, before),
        ]
        for _ in range(20):
            user_key = Hostile(chance.randrange(size + 3), strikes_in)
            attack = chance.choice(strikes)
            uses_of_it: list[Callable[[], object]] = [
                partial(handle.get, user_key),
                partial(handle.put, user_key, 1),
                partial(handle.remove, user_key),
                partial(handle.contains, user_key),
                partial(backend.changes, before),
                lambda: list(handle.items() or ()),
            ]
            with contextlib.suppress(LifecycleError):
                chance.choice(uses_of_it)()
            attack = None
            if backend.context.closed:
                return
            backend.set_current_key("ann")
            backend.check_invariants()


def fuzz_finalisers() -> None:
    """Values whose `__del__` uses the map that drops them."""
    chance = random.Random(5)
    for _ in range(ROUNDS):
        dying_values(chance)


def dying_values(chance: random.Random) -> None:
    """One program over values that strike when they go."""
    global attack
    attack = None
    states = CopyOnWriteStateMap(IMMUTABLE)
    for key in range(20):
        states.put(key, NS, Dying())
    for _ in range(40):
        key = chance.randrange(20)
        strikes: list[Callable[[], object]] = [
            partial(states.get, key, NS),
            partial(states.put, key, NS, 0),
            partial(states.remove, key, NS),
            lambda: states.snapshot().release(),
        ]
        attack = chance.choice(strikes)
        chance.choice([states.put, states.put_and_get_old])(key, NS, Dying())
        attack = None
        states.check_invariants()


def cases() -> Iterator[str]:
    """The fuzzers, as what a process is to run."""
    for strikes_in in ("eq", "hash", "copy", "chance"):
        yield f"fuzz_maps({strikes_in!r})"
    yield from ("fuzz_map_state('eq')", "fuzz_map_state('hash')", "fuzz_finalisers()")


@pytest.mark.parametrize("case", list(cases()))
def test_no_class_of_a_user_ends_the_process(case: str) -> None:
    """Catches: an entry, page or log that is used after a key's or value's own code has freed it."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", f"import {__name__} as t; t.{case}; print('refused', t.refused)"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, (
        f"{signal.Signals(-done.returncode).name if done.returncode < 0 else done.returncode}\n{done.stderr[-3000:]}"
    )
    if "chance" not in case and "finalisers" not in case:
        assert "refused 0" not in done.stdout


@pytest.mark.parametrize("map_type", [CopyOnWriteStateMap, NestedStateMap])
def test_a_key_that_changes_the_map_hears_of_it(map_type: Any) -> None:
    """Catches: a change from within `==` that is lost, or that loses another, without a word."""
    states = map_type(IMMUTABLE)
    states.put(Hostile(1, "eq"), NS, 1)

    class Writer(Hostile):
        __hash__ = Hostile.__hash__

        def __eq__(self, other: object) -> bool:
            states.put("more", NS, 2)
            return super().__eq__(other)

    for use in (states.get, states.remove, lambda key, namespace: states.put(key, namespace, 3)):
        with raising(LifecycleError, found="a class's own code"):
            use(Writer(1, ""), NS)
    states.put("other", NS, 4)

    assert states.get(Hostile(1, ""), NS) == 1
    assert len(states) == 2
    states.check_invariants()


def test_a_hash_that_looks_something_up_does_not_move_its_key() -> None:
    """Catches: a pair put under the hash of a namespace that its key's hash function looked into."""
    states = CopyOnWriteStateMap(IMMUTABLE)

    class Curious(Hostile):
        def __hash__(self) -> int:
            states.get("a", "another namespace")
            return 1

    states.put(Curious(1, ""), NS, 1)
    assert states.get(Curious(1, ""), NS) == 1
    states.check_invariants()
