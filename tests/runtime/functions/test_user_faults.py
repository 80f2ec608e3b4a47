"""What a function can do wrong, and what comes of it: a clear error, and nothing of the attempt is left."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from emberstate.checkpoint.files.writer import write_delta
from emberstate.errors import (
    EmberstateError,
    LifecycleError,
    RowTypeError,
    StateDeclarationError,
    StateTypeError,
    UserFunctionError,
)
from emberstate.runtime.functions.declared_states import list_state, map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from tests.raising import raising
from tests.runtime.support import opened, transaction

pytestmark = pytest.mark.reliability(28)

Body = Callable[[Any, Any, Any], Any]


class Faulty(KeyedProcessFunction):
    """Does what the row says, after it has changed every state it has."""

    total = value_state(int, default=0)
    seen = map_state(str, int)
    names = list_state(str)
    composite = value_state(list[int])

    def __init__(self) -> None:
        self.kept: Any = None

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update(self.total.value() + 1)
        self.seen["x"] = self.total.value()
        self.names.add("x")
        ctx.timers.event.register("t", 10)
        ctx.output("side", (1,))
        ctx.count("rows")
        return row(self, ctx) if callable(row) else row

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        raise LookupError("in the timer")


def content(operator: KeyedOperator) -> dict[str, Any]:
    """Everything the operator's backend holds."""
    with operator.backend.snapshot() as snapshot:
        held: dict[str, Any] = {
            name: [entry for group in range(128) for entry in snapshot.entries(name, group)] for name in snapshot.states
        }
        held["timers"] = [
            entry for name in snapshot.timer_queues for group in range(128) for entry in snapshot.timers(name, group)
        ]
    return held


def failing(row: Any, *, output: str | None = "n bigint") -> EmberstateError:
    """The error of a row in a transaction after a good one; checks that rolling back leaves no trace."""
    operator = opened(Faulty(), output=output, side_outputs={"side": "n bigint"})
    transaction(operator, [("k", (1,))])
    before = content(operator)
    with operator.snapshot() as point:
        operator.begin(0)
        operator.process("k", (2,))
        with pytest.raises(EmberstateError) as caught:
            operator.process("bad key", row)
        assert operator.backend.current_key is None
        operator.roll_back(point)
    assert content(operator) == before
    result = transaction(operator, [("k", (3,))])
    assert (result.main, result.outputs["side"].rows, result.counters) == ([(3,)], [(1,)], {"rows": 1})
    return caught.value


def key_error(function: Any, ctx: Any) -> Any:
    raise KeyError("the user's own")


def yields_then_raises(function: Any, ctx: Any) -> Any:
    yield (1,)
    raise KeyError("the user's own")


@pytest.mark.parametrize("row", [key_error, yields_then_raises])
def test_an_exception_of_the_function(row: Body) -> None:
    """Catches: an error that does not say key, row and operator, or hides the user's own traceback."""
    error = failing(row)

    assert isinstance(error, UserFunctionError)
    assert isinstance(error.__cause__, KeyError)
    text = str(error)
    assert "operator 'op', Faulty.process_element raised KeyError: \"the user's own\"" in text
    assert "key: 'bad key'" in text
    assert "row: <function" in text
    assert "test_user_faults.py" in text  # the user's own frames


def test_an_exception_in_a_timer() -> None:
    """Catches: an error of a timer without the timer and its key."""
    operator = opened(Faulty(), side_outputs={"side": None})
    transaction(operator, [("k", (1,))])
    with raising(UserFunctionError, "on_timer raised LookupError", key="k") as caught:
        operator.begin(0, 10)
    assert "timer: KeyedTimer(name='t', micros=10, key='k'" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "rows"),
    [
        ((1,), [(1,)]),
        ({"n": 1}, [(1,)]),
        ([(1,), {"n": 2}], [(1,), (2,)]),
        (None, []),
        ([], []),
        (lambda f, c: iter([(1,), (2,)]), [(1,), (2,)]),
        (lambda f, c: ((n,) for n in range(3)), [(0,), (1,), (2,)]),
        ((None,), [(None,)]),
    ],
)
def test_outputs_that_are_taken(row: Any, rows: list[Any]) -> None:
    """Catches: a way to put rows out that is documented and does not work."""
    operator = opened(Faulty(), output="n bigint", side_outputs={"side": "n bigint"})

    assert transaction(operator, [("k", row)]).main == rows


def returns_value(function: Any, ctx: Any) -> Any:
    yield (1,)
    return (2,)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("text", "it returned str ('text')"),
        (b"text", "it returned bytes"),
        (5, "it returned int (5)"),
        ({1, 2}, "it returned set"),
        ([None], "found NoneType (None) (yield nothing instead of None)"),
        (["text"], "a row is a tuple, a dict or a dataclass, found str ('text')"),
        ([[1]], "a row is a tuple, a dict or a dataclass, found list ([1])"),
        ([5], "for a single column yield (value,)"),
        ((1, 2), "has 1 columns, found a row of 2 ((1, 2))"),
        ((), "has 1 columns, found a row of 0"),
        ({"m": 1}, "without ['n'] and with ['m'], which it does not have"),
        (("1",), "column n is bigint, found str ('1') in row ('1',)"),
        ((1.0,), "column n is bigint, found float (1.0)"),
        ((datetime(2026, 1, 1),), "column n is bigint, found datetime"),
        (returns_value, "a generator returned (2,), which is lost: yield it"),
    ],
)
def test_outputs_that_are_refused(row: Any, message: str) -> None:
    """Catches: a wrong output that is dropped, taken apart into characters, or found out by the sink."""
    error = failing(row)

    assert isinstance(error, RowTypeError)
    assert message in str(error)
    assert "operator 'op'" in str(error)
    assert "Faulty" in str(error)


def unknown_output(function: Any, ctx: Any) -> Any:
    ctx.output("nowhere", (1,))


def wrong_side_output(function: Any, ctx: Any) -> Any:
    ctx.output("side", ("1",))


def test_side_outputs() -> None:
    """Catches: a side output with a mistyped name, or rows of the wrong type, that goes nowhere."""
    error = failing(unknown_output)
    assert isinstance(error.__cause__, StateDeclarationError)
    assert "has no output 'nowhere', it has ['main', 'side']" in str(error)

    error = failing(wrong_side_output)
    assert isinstance(error, RowTypeError)
    assert "output 'side' of Faulty: column n is bigint, found str" in str(error)


def scalar(function: Any, ctx: Any) -> Any:
    function.total.update("5")


def user_key(function: Any, ctx: Any) -> Any:
    function.seen[1] = 1


def none_in_list(function: Any, ctx: Any) -> Any:
    function.names.add(None)


def naive_timer(function: Any, ctx: Any) -> Any:
    ctx.timers.register_event_time("t", datetime(2026, 1, 1))


def numeric_timer(function: Any, ctx: Any) -> Any:
    ctx.timers.register_event_time("t", 1_000)


def nameless_timer(function: Any, ctx: Any) -> Any:
    ctx.timers.event.register("", 1_000)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (scalar, "value state 'total': $: expected int, got str"),
        (user_key, "map state 'seen'"),
        (none_in_list, "list state 'names' holds no None"),
        (naive_timer, "it has no zone"),
        (numeric_timer, "a bare number has no unit"),
        (nameless_timer, "a timer needs a name"),
    ],
)
def test_wrong_types_in_state_and_timers(row: Body, message: str) -> None:
    """Catches: a wrong-typed value that is stored, to be found out at the next restore."""
    error = failing(row)

    assert isinstance(error.__cause__, StateTypeError)
    assert message in str(error)
    assert "key: 'bad key'" in str(error)


def test_a_wrong_composite_is_refused_at_prepare() -> None:
    """Catches: a list of ints with a text in it that is committed; and a refusal without state, key and path."""
    operator = opened(Faulty(), side_outputs={"side": None})
    with operator.snapshot() as point:
        transaction(operator, [("bad key", lambda function, ctx: function.composite.update([1, "2"]))])
        with pytest.raises(StateTypeError) as caught:
            write_delta(operator.backend, point.keyed)
        operator.roll_back(point)
        assert content(operator)["composite"] == []
    for part in ("composite", "bad key", "$[1]", "expected int, got str"):
        assert part in str(caught.value)


def keeps_iterator(function: Any, ctx: Any) -> Any:
    function.seen["y"] = 1
    function.kept = iter(function.seen.items())
    next(function.kept)


def uses_iterator(function: Any, ctx: Any) -> Any:
    next(function.kept)


def test_an_iterator_kept_for_another_key() -> None:
    """Catches: an iteration that goes on over another key's map."""
    operator = opened(Faulty(), side_outputs={"side": None})
    operator.begin(0)
    operator.process("a", keeps_iterator)
    with raising(UserFunctionError, key="b", expected="a") as caught:
        operator.process("b", uses_iterator)
    assert isinstance(caught.value.__cause__, LifecycleError)


def test_changed_after_update_and_cleared_while_iterating() -> None:
    """Catches: a change to a list that was handed in going lost, and a half-done iteration that goes on."""

    def changes(function: Any, ctx: Any) -> Any:
        numbers = [1]
        function.composite.update(numbers)
        numbers.append(2)
        return None

    def clears(function: Any, ctx: Any) -> Any:
        for _ in function.seen:
            function.seen.clear()

    operator = opened(Faulty(), side_outputs={"side": None})
    transaction(operator, [("k", changes)])
    assert content(operator)["composite"] == [("k", "", [1, 2])]
    operator.begin(0)
    with raising(UserFunctionError, "during iteration", operator="op"):
        operator.process("k", clears)


def test_update_none_clears() -> None:
    """Catches: None stored as a value."""
    operator = opened(Faulty(), side_outputs={"side": None})
    transaction(operator, [("k", lambda function, ctx: function.total.update(None))])

    assert content(operator)["total"] == []


@pytest.mark.parametrize("key", [None, 1, ["a"], "\ud800"])
def test_keys_that_are_none(key: Any) -> None:
    """Catches: a key of the wrong type, or one that is no key, under which state is stored."""
    operator = opened(Faulty())
    operator.begin(0)
    with raising(StateTypeError, "string"):
        operator.process(key, None)


def test_a_keyboard_interrupt_is_not_wrapped() -> None:
    """Catches: a stop that is taken for a mistake of the function."""

    def stops(function: Any, ctx: Any) -> Any:
        raise KeyboardInterrupt

    operator = opened(Faulty(), side_outputs={"side": None})
    with operator.snapshot() as point:
        operator.begin(0)
        with pytest.raises(KeyboardInterrupt):
            operator.process("k", stops)
        operator.roll_back(point)
    assert transaction(operator, [("k", (1,))]).main == [(1,)]


class NoTimers(KeyedProcessFunction):
    """Registers a timer that nobody handles."""

    def process_element(self, row: Any, ctx: Any) -> Any:
        ctx.timers.event.register("t", 1)


def test_a_timer_nobody_handles() -> None:
    """Catches: a timer that fires into nothing."""
    operator = opened(NoTimers())
    operator.begin(0)
    with raising(UserFunctionError, option="on_timer"):
        operator.process("k", None)


def test_open_that_raises() -> None:
    """Catches: an operator that counts as open though its function is not."""

    class Unopened(NoTimers):
        def open(self, ctx: Any) -> None:
            ctx.key  # there is none yet

    with raising(UserFunctionError, "open raised LifecycleError"):
        opened(Unopened())


def test_no_processing_time_in_open() -> None:
    """Catches: a clock read in open, which a rerun would read differently."""

    class Reads(NoTimers):
        def open(self, ctx: Any) -> None:
            ctx.processing_time

    with raising(UserFunctionError, option="processing_time"):
        opened(Reads())
