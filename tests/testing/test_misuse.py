"""What a function must not do, done in a harness: an error at once, and nothing of the element is left."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import LifecycleError, RowTypeError, UserFunctionError
from emberstate.testing import Harness


class Misused(es.KeyedProcessFunction):
    """Does what the test says, after it has changed its state."""

    total = es.value_state(list[int])
    pairs = es.map_state(str, int)

    def __init__(self, do: Callable[[Any, Any], Any]) -> None:
        self.do = do

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.total.update([*(self.total.value() or []), row.n])
        self.pairs[str(row.n)] = row.n
        return self.do(self, row) if row.n == 2 else None


def misused(do: Callable[[Any, Any], Any], **options: Any) -> Harness:
    """A harness around `Misused`, with two good rows before it misbehaves."""
    harness = Harness(Misused(do), schema="k string, n int", key="k", output="n int", **options)
    harness.process(("a", 1), ("b", 1))
    return harness


def in_thread(function: Any, row: Any) -> None:
    """Use state from another thread, and pass on what that raises."""
    raised: list[BaseException] = []

    def use() -> None:
        try:
            function.total.value()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    raise raised[0]


def kept_iterator(function: Any, row: Any) -> Any:
    """Go on with an iterator that belongs to another state of things."""
    iterator = iter(function.pairs)
    next(iterator)
    function.pairs["new"] = 1
    function.pairs["newer"] = 1
    return list(iterator)


def half_a_generator(function: Any, row: Any) -> Iterator[tuple[Any, ...]]:
    """Put one row out, and fail before the next."""
    yield (row.n,)
    raise LookupError("half-way")


def assign(function: Any, row: Any) -> None:
    """Overwrite a state."""
    function.total = [1]


@pytest.mark.reliability(28)
@pytest.mark.reliability(29)
@pytest.mark.parametrize(
    ("do", "cause"),
    [
        (in_thread, LifecycleError),
        (half_a_generator, LookupError),
        (assign, ValueError),
        (lambda function, row: pickle.dumps(function.total), LifecycleError),
        (lambda function, row: function.pairs.put(["unhashable"], 1), TypeError),
        (lambda function, row: function.pairs.put("x", "wrong"), TypeError),
        (lambda function, row: function.total.update("wrong"), TypeError),
        (lambda function, row: 1 / 0, ZeroDivisionError),
        (lambda function, row: [(1, 2)], RowTypeError),
        (lambda function, row: [5], RowTypeError),
    ],
)
def test_a_misuse_is_refused_and_undone(
    do: Callable[[Any, Any], Any], cause: type[Exception], state_backend: StateBackend
) -> None:
    """Catches: a misuse that corrupts state, goes unnoticed, or leaves half an element behind."""
    with misused(do, state_backend=state_backend) as harness:
        with pytest.raises((UserFunctionError, RowTypeError, TypeError)) as raised:
            harness.process(("a", 2))

        assert isinstance(raised.value, cause) or isinstance(raised.value.__cause__, cause), raised.value
        assert (harness.state("total", "a"), harness.state("pairs", "a")) == ([1], {"1": 1})
        assert harness.output == []
        harness.process(("a", 3))
        assert harness.state("total", "a") == [1, 3]
        harness.check_invariants()


@pytest.mark.reliability(28)
def test_a_value_changed_after_update_is_stored_as_it_is(state_backend: StateBackend) -> None:
    """Catches: live and stored state that differ because a value was changed after it was handed over."""

    def change_later(function: Any, row: Any) -> None:
        mine = [7]
        function.total.update(mine)
        mine.append(8)

    with misused(change_later, state_backend=state_backend) as harness:
        harness.process(("a", 2))
        held = harness.state("total", "a")
        harness.crash()
        harness.process(("a", 3))

        assert held in ([7], [7, 8])
        assert harness.state("total", "a") == [*held, 3]


@pytest.mark.reliability(28)
def test_clearing_and_changing_while_iterating(state_backend: StateBackend) -> None:
    """Catches: an iteration over a map that changes under it and ends in wrong state, rather than in an error or
    in what a dict would give."""
    with misused(kept_iterator, state_backend=state_backend) as harness:
        with pytest.raises((UserFunctionError, RowTypeError)):
            harness.process(("a", 2))
        assert harness.state("pairs", "a") == {"1": 1}
        harness.check_invariants()


@pytest.mark.reliability(29)
def test_a_handle_that_escapes() -> None:
    """Catches: state that can be read or changed outside a row, by whoever kept a handle, or after close."""
    escaped: list[Any] = []

    def keep(function: Any, row: Any) -> None:
        escaped.append(function.total)

    harness = misused(keep)
    harness.process(("a", 2))
    with pytest.raises(LifecycleError):
        escaped[0].update([0])
    assert harness.state("total", "a") == [1, 2]
    harness.close()
    with pytest.raises(LifecycleError):
        escaped[0].value()


@pytest.mark.reliability(29)
def test_another_thread_cannot_drive_the_harness() -> None:
    """Catches: rows handled by a thread that does not own the state."""
    with misused(lambda function, row: None) as harness:
        raised: list[BaseException] = []

        def use() -> None:
            try:
                harness.process(("a", 3))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()

        assert isinstance(raised[0], LifecycleError)
        assert harness.state("total", "a") == [1]
        harness.process(("a", 3))
        assert harness.state("total", "a") == [1, 3]
