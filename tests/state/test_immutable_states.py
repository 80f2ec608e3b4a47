"""Read-only states: reads work, nothing can be changed by any way in."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import pytest

from emberstate.codec import codec_for
from emberstate.errors import StateTypeError
from emberstate.state.immutable_states import (
    ImmutableAggregatingState,
    ImmutableListState,
    ImmutableMapState,
    ImmutableReducingState,
    ImmutableValueState,
)
from emberstate.state.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from tests.raising import raising
from tests.state.support import Collect

#: What MutableMapping and MapState have for reading; everything else public must be refused.
MAP_READS = {"get", "contains", "keys", "values", "items", "entries", "iterator", "is_empty"}


def test_reads_work() -> None:
    """Catches a read-only state that shows something else than it was given."""
    numbers = codec_for(list[int])
    value = ImmutableValueState([1], numbers)
    elements = ImmutableListState([[1], [2]], numbers)
    pairs = ImmutableMapState({"a": [1], "n": None}, numbers)
    reducing = ImmutableReducingState([1], numbers)
    aggregating = ImmutableAggregatingState([2, 1], numbers, Collect())
    assert isinstance(value, ValueState)
    assert isinstance(elements, ListState)
    assert isinstance(pairs, MapState)
    assert isinstance(pairs, MutableMapping)
    assert isinstance(reducing, ReducingState)
    assert isinstance(aggregating, AggregatingState)
    assert value.value() == [1]
    assert elements.get() == list(elements) == [[1], [2]]
    assert len(elements) == 2
    assert not elements.is_empty()
    assert dict(pairs) == dict(pairs.entries()) == dict(pairs.iterator()) == pairs == {"a": [1], "n": None}
    assert pairs.contains("n")
    assert "n" in pairs
    assert "b" not in pairs
    assert pairs.get("b", 7) == 7
    assert pairs["n"] is None
    assert list(pairs.keys()) == ["a", "n"]
    assert list(pairs.values()) == [[1], None]
    assert len(pairs) == 2
    assert not pairs.is_empty()
    with pytest.raises(KeyError):
        pairs["b"]
    assert reducing.get() == [1]
    assert aggregating.get() == [1, 2]


def test_absent_is_none_or_empty() -> None:
    """Catches an error where nothing was stored."""
    numbers = codec_for(list[int])
    assert ImmutableValueState(None, numbers).value() is None
    assert ImmutableListState([], numbers).is_empty()
    assert ImmutableMapState({}, numbers).is_empty()
    assert ImmutableReducingState(None, numbers).get() is None
    assert ImmutableAggregatingState(None, numbers, Collect()).get() is None


def test_nothing_is_shared_with_anybody() -> None:
    """Catches a reader who changes what the next reader sees, or a giver who still holds the content."""
    numbers = codec_for(list[int])
    given = [1]
    value = ImmutableValueState(given, numbers)
    elements = ImmutableListState([given], numbers)
    pairs = ImmutableMapState({"a": given}, numbers)
    reducing = ImmutableReducingState(given, numbers)
    aggregating = ImmutableAggregatingState(given, numbers, Collect())
    given.append(99)
    for hand_out in (
        value.value,
        lambda: elements.get()[0],
        lambda: pairs["a"],
        reducing.get,
        aggregating.get,
    ):
        read: Any = hand_out()
        assert read == [1]
        read.append(99)
        assert hand_out() == [1]
    for _, read in pairs.items():
        read.append(99)
    elements.get().append([5])
    assert pairs["a"] == [1]
    assert len(elements) == 1


@pytest.mark.parametrize(
    "mutate",
    [
        lambda state: state.put("b", 1),
        lambda state: state.put_all({}),
        lambda state: state.put_all({"b": 1}),
        lambda state: state.remove("a"),
        lambda state: state.remove("nothing"),
        lambda state: state.clear(),
        lambda state: state.__setitem__("a", 1),
        lambda state: state.__delitem__("a"),
        lambda state: state.pop("a"),
        lambda state: state.pop("nothing", None),
        lambda state: state.popitem(),
        lambda state: state.setdefault("a", 1),
        lambda state: state.setdefault("b"),
        lambda state: state.update({"b": 1}),
        lambda state: state.update(),
        lambda state: state.update(b=1),
    ],
)
@pytest.mark.parametrize("content", [{}, {"a": 1}])
def test_every_mutator_of_a_map_raises(mutate: Callable[[Any], Any], content: dict[str, int]) -> None:
    """Catches a mutator that changes, does nothing silently, or raises something else (KeyError on an empty
    map).
    """
    state = ImmutableMapState(content, codec_for(int))
    with raising(StateTypeError, found="read-only map state"):
        mutate(state)
    assert dict(state) == content


def test_every_public_name_of_a_map_is_accounted_for() -> None:
    """Catches a mutator that MutableMapping or MapState gains and that nobody has thought of here."""
    names = {name for name in dir(MapState) if not name.startswith("_")}
    mutators = {"put", "put_all", "remove", "clear", "pop", "popitem", "setdefault", "update"}
    assert names == MAP_READS | mutators
    for name in mutators:
        assert name in vars(ImmutableMapState), f"{name} is inherited, not refused"


@pytest.mark.parametrize(
    ("state", "mutate"),
    [
        (ImmutableValueState(1, codec_for(int)), lambda state: state.update(2)),
        (ImmutableValueState(1, codec_for(int)), lambda state: state.update(None)),
        (ImmutableValueState(1, codec_for(int)), lambda state: state.clear()),
        (ImmutableListState([1], codec_for(int)), lambda state: state.add(2)),
        (ImmutableListState([1], codec_for(int)), lambda state: state.append(2)),
        (ImmutableListState([1], codec_for(int)), lambda state: state.add_all([])),
        (ImmutableListState([1], codec_for(int)), lambda state: state.update([])),
        (ImmutableListState([1], codec_for(int)), lambda state: state.clear()),
        (ImmutableReducingState(1, codec_for(int)), lambda state: state.add(2)),
        (ImmutableReducingState(1, codec_for(int)), lambda state: state.add(None)),
        (ImmutableReducingState(1, codec_for(int)), lambda state: state.clear()),
        (ImmutableAggregatingState([1], codec_for(list[int]), Collect()), lambda state: state.add(2)),
        (ImmutableAggregatingState([1], codec_for(list[int]), Collect()), lambda state: state.clear()),
    ],
)
def test_every_mutator_of_the_others_raises(state: Any, mutate: Callable[[Any], Any]) -> None:
    """Catches a mutator that is silent."""
    with pytest.raises(StateTypeError) as caught:
        mutate(state)
    assert caught.value.found.startswith("read-only")


def test_truth_is_refused() -> None:
    """Catches `if state:`, which is true of a read-only state whatever it holds."""
    for state, method in (
        (ImmutableValueState(0, codec_for(int)), "value"),
        (ImmutableReducingState(0, codec_for(int)), "get"),
    ):
        with raising(StateTypeError, option=method):
            bool(state)
