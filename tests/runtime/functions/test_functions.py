"""Functions: declared states, lifecycle, what an operator refuses to run."""

from __future__ import annotations

import pickle
import threading
from datetime import timedelta
from typing import Any

import pytest
from pyspark import cloudpickle

from emberstate.errors import LifecycleError, Place, StateDeclarationError, UserFunctionError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.runtime.functions.declared_states import (
    DeclaredState,
    aggregating_state,
    broadcast_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from emberstate.runtime.functions.function import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    declarations,
)
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.states import AggregateFunction
from emberstate.state.ttl.config import TtlConfig, TtlUpdate
from tests.raising import raising
from tests.runtime.support import SECOND, opened, transaction


class Mean(AggregateFunction[float, tuple[float, int], float]):
    """The mean of floats."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]


class AllKinds(KeyedProcessFunction):
    """Every kind of declared state."""

    total = value_state(float, default=0.0)
    names = list_state(str, name="the names")
    seen = map_state(str, int, ttl=timedelta(hours=1))
    most = reducing_state(max, float, ttl="1 day")
    mean = aggregating_state(Mean(), tuple[float, int], ttl=TtlConfig("2 days", TtlUpdate.ON_READ_AND_WRITE))

    def process_element(self, row: Any, ctx: Any) -> Any:
        name, amount = row
        self.total.update(self.total.value() + amount)
        self.names.add(name)
        self.seen[name] = self.seen.get(name, 0) + 1
        self.most.add(amount)
        self.mean.add(amount)
        yield self.total.value(), self.names.get(), dict(self.seen), self.most.get(), self.mean.get()


class AllKindsByDescriptor(KeyedProcessFunction):
    """The same, as Flink's users write it."""

    def open(self, ctx: Any) -> None:
        self.a = ctx.get_value_state(ValueStateDescriptor("total", float, default=0.0))
        self.b = ctx.get_list_state(ListStateDescriptor("the names", str))
        self.c = ctx.get_map_state(MapStateDescriptor("seen", str, int, ttl=TtlConfig("1 hour")))
        self.d = ctx.get_reducing_state(ReducingStateDescriptor("most", max, float, ttl=TtlConfig("1 day")))
        ttl = TtlConfig("2 days", TtlUpdate.ON_READ_AND_WRITE)
        self.e = ctx.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), tuple[float, int], ttl=ttl))

    def process_element(self, row: Any, ctx: Any) -> Any:
        name, amount = row
        self.a.update(self.a.value() + amount)
        self.b.add(name)
        self.c[name] = self.c.get(name, 0) + 1
        self.d.add(amount)
        self.e.add(amount)
        yield self.a.value(), self.b.get(), dict(self.c), self.d.get(), self.e.get()


ROWS = [("k", ("x", 1.0)), ("l", ("x", 5.0)), ("k", ("y", 3.0)), ("k", ("x", 2.0))]
EXPECTED = [
    (1.0, ["x"], {"x": 1}, 1.0, 1.0),
    (5.0, ["x"], {"x": 1}, 5.0, 5.0),
    (4.0, ["x", "y"], {"x": 1, "y": 1}, 3.0, 2.0),
    (6.0, ["x", "y", "x"], {"x": 2, "y": 1}, 3.0, 2.0),
]


@pytest.mark.parametrize("function", [AllKinds(), AllKindsByDescriptor()])
def test_every_kind_of_state(function: KeyedProcessFunction) -> None:
    """Catches: a kind of state that cannot be declared, or is another one by descriptor."""
    operator = opened(function)

    assert transaction(operator, ROWS).main == EXPECTED
    assert transaction(operator, [("k", ("x", 2.0))], processing_time=3600 * SECOND).main == [
        (8.0, ["x", "y", "x", "x"], {"x": 1}, 3.0, 2.0)
    ]


def test_declarations_are_known_without_running() -> None:
    """Catches: a driver that has to open a function to know its states, or finds other names than are stored."""
    assert [(d.descriptor.kind, d.descriptor.name) for d in declarations(AllKinds())] == [
        ("value", "total"),
        ("list", "the names"),
        ("map", "seen"),
        ("reducing", "most"),
        ("aggregating", "mean"),
    ]
    assert isinstance(AllKinds.total, DeclaredState)
    assert repr(AllKinds.names) == "<declared list state 'the names'>"


def test_inherited_and_overridden_declarations() -> None:
    """Catches: a subclass that loses its base's states, or keeps one that it put something else in place of."""

    class Base(KeyedProcessFunction):
        one = value_state(int)
        two = value_state(int)

    class Derived(Base):
        two = None  # type: ignore[assignment]
        three = value_state(int)

        def process_element(self, row: Any, ctx: Any) -> Any: ...

    assert [d.descriptor.name for d in declarations(Derived())] == ["one", "three"]


@pytest.mark.parametrize(
    ("body", "word", "place"),
    [
        (lambda: {"a": value_state(int, name="x"), "b": list_state(int, name="x")}, "a and .b", {"state": "x"}),
        (lambda: dict.fromkeys(("a", "b"), value_state(int)), "b and .a", {"state": "a"}),
        (lambda: {"a": value_state(object)}, "", {"field": "value state 'a'"}),
        (lambda: {"a": map_state(list[int], int)}, "", {"field": "user key of map state 'a'"}),
        (lambda: {"a": value_state(int, name=" x")}, "", {"state": " x"}),
    ],
)
def test_bad_declarations(body: Any, word: str, place: Place) -> None:
    """Catches: a mistake in a class that is found only when the first row comes, or behind a RuntimeError."""
    with raising(StateDeclarationError, word, **place):
        type("Bad", (KeyedProcessFunction,), body())


def test_bad_time_to_live() -> None:
    """Catches: a bare number as a duration, whose unit nobody can see."""
    with raising(StateDeclarationError, option="duration"):
        value_state(int, ttl=5)  # type: ignore[call-overload]


def make(function: Any, **options: Any) -> KeyedOperator:
    return KeyedOperator("op", function, HeapKeyedStateBackend(KeySchema.from_python(str)), **options)


class NoElement(KeyedProcessFunction):
    """Has nothing for rows."""


class Async(KeyedProcessFunction):
    """Is async."""

    async def process_element(self, row: Any, ctx: Any) -> Any: ...  # type: ignore[override]


class OneInput(KeyedCoProcessFunction):
    """Has nothing for the second input."""

    def process_element1(self, row: Any, ctx: Any) -> Any: ...


class NoBroadcast(KeyedBroadcastProcessFunction):
    """Has nothing for broadcast rows."""

    def process_element(self, row: Any, ctx: Any) -> Any: ...


class Locked(AllKinds):
    """Cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


class BroadcastInKeyed(AllKinds):
    """Declares broadcast state where no broadcast rows come."""

    rules = broadcast_state(str, int)


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (AllKinds, {"operator": "op", "expected": "an instance", "found": "AllKinds"}),
        (len, {"operator": "op", "found": "builtin_function_or_method"}),
        (ProcessFunction(), {"operator": "op", "found": "ProcessFunction"}),
        (NoElement(), {"operator": "op", "option": "process_element"}),
        (OneInput(), {"operator": "op", "option": "process_element2"}),
        (NoBroadcast(), {"operator": "op", "option": "process_broadcast_element"}),
        (Async(), {"operator": "op", "option": "process_element", "found": "async"}),
        (Locked(), {"operator": "op", "option": "__deepcopy__"}),
        (BroadcastInKeyed(), {"option": "get_broadcast_state"}),
    ],
)
def test_functions_that_cannot_run(function: Any, place: Place) -> None:
    """Catches: a function whose rows would go nowhere, found out in production."""
    with raising(StateDeclarationError, **place):
        make(function).open()


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"side_outputs": {"main": None}}, {"option": "side_outputs", "found": "main"}),
        ({"late_output": "main"}, {"option": "late_output", "found": "main"}),
        ({"out_of_orderness": timedelta(seconds=-1)}, {"option": "out_of_orderness"}),
        ({"out_of_orderness": 10}, {"option": "out_of_orderness"}),
        ({"output": "a nothing"}, {"option": "schema", "found": "nothing"}),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], place: Place) -> None:
    """Catches: an option that is taken and then does something else."""
    with raising(StateDeclarationError, **place):
        make(AllKinds(), **options)


def test_order_of_calls() -> None:
    """Catches: a host that forgets begin, or goes on after a failure as if nothing had happened."""
    operator = make(AllKinds())
    with raising(LifecycleError, "not open", operator=operator.name):
        operator.begin(0)
    operator.open()
    with raising(LifecycleError, "outside a transaction", operator=operator.name):
        operator.process("k", ("x", 1.0))
    point = operator.snapshot()
    operator.begin(0)
    with raising(LifecycleError, "in a transaction", operator=operator.name):
        operator.snapshot()
    with raising(UserFunctionError, operator="op", key="k"):
        operator.process("k", (1.0,))
    with raising(LifecycleError, "roll back", operator=operator.name):
        operator.end()
    operator.roll_back(point)
    assert transaction(operator, ROWS).main == EXPECTED
    operator.close()
    operator.close()
    with raising(LifecycleError, "closed", operator=operator.name):
        operator.begin(0)


class Attributes(KeyedProcessFunction):
    """Keeps a count in itself, which is no state, and says when it is opened and closed."""

    log: list[str]

    def __init__(self) -> None:
        self.count = 0

    def open(self, ctx: Any) -> None:
        ctx.count("opened")
        self.opened = True

    def close(self) -> None:
        raise ValueError("no way to close")

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.count += 1
        return self.count, self.opened


def test_attributes_do_not_survive_a_roll_back(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: what a failed attempt remembered in attributes going into the next one; a failing close in the way."""
    prototype = Attributes()
    operator = opened(prototype)
    with operator.snapshot() as point:
        assert transaction(operator, [("a", None), ("a", None)]).main == [(1, True), (2, True)]
        operator.roll_back(point)
    assert "Attributes.close raised" in caplog.text
    assert transaction(operator, [("a", None)]).main == [(1, True)]
    assert (prototype.count, hasattr(prototype, "opened")) == (0, False)
    assert operator.statistics().roll_backs == 1


def test_counters_and_statistics() -> None:
    """Catches: counts of a failed attempt reported with the next one."""

    class Counts(KeyedProcessFunction):
        def process_element(self, row: Any, ctx: Any) -> Any:
            ctx.count("rows")
            ctx.count("sum", row)

    operator = opened(Counts())
    with operator.snapshot() as point:
        assert transaction(operator, [("a", 2), ("a", 3)]).counters == {"rows": 2, "sum": 5}
        operator.roll_back(point)
    assert transaction(operator, [("a", 7)]).counters == {"rows": 1, "sum": 7}
    assert (operator.statistics().rows, operator.statistics().transactions) == (3, 2)


def test_functions_travel() -> None:
    """Catches: a function of a notebook, declared states and all, that cannot be sent to a worker."""

    class InNotebook(KeyedProcessFunction):
        total = value_state(float, default=0.5)

        def process_element(self, row: Any, ctx: Any) -> Any:
            return (self.total.value(),)

    there = pickle.loads(cloudpickle.dumps(InNotebook()))  # type: ignore[no-untyped-call]

    assert transaction(opened(there), [("a", None)]).main == [(0.5,)]
    assert transaction(opened(pickle.loads(pickle.dumps(AllKinds()))), ROWS).main == EXPECTED


@pytest.mark.reliability(29)
def test_declared_state_where_it_cannot_be_used() -> None:
    """Catches: state used before open, after close, on a prototype, or assigned to by mistake."""
    with raising(LifecycleError, "not open", state="total"):
        AllKinds().total.value()
    operator = opened(AllKinds())
    function = operator._runner._function
    with raising(LifecycleError, expected="a current key"):
        function.total.value()  # type: ignore[attr-defined]
    with raising(StateDeclarationError, state="total"):
        function.total = 5
    with raising(LifecycleError, state="total", option="__reduce__"):
        pickle.dumps(function)
    handle = function.total  # type: ignore[attr-defined]
    operator.close()
    with raising(LifecycleError, "not open", state="total"):
        function.total.value()  # type: ignore[attr-defined]
    with raising(LifecycleError, found="closed"):
        handle.value()
