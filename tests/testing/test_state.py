"""Looking at state and timers through a harness, and the round trip that every transaction makes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import InvariantError, StateDeclarationError, UserFunctionError
from emberstate.heap.backend import HeapBackendStatistics
from emberstate.testing import Harness
from tests.raising import raising
from tests.testing.support import pay, totals


class Mean(es.AggregateFunction[float, tuple[float, int], float]):
    """The mean of numbers."""

    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
        return one[0] + other[0], one[1] + other[1]


class EveryState(es.KeyedProcessFunction):
    """One state of each kind, one in a namespace, one asked for in `open`."""

    value = es.value_state(list[int])
    elements = es.list_state(int)
    pairs = es.map_state(str, int)
    largest = es.reducing_state(max, int)
    mean = es.aggregating_state(Mean(), tuple[float, int])

    def open(self, ctx: Any) -> None:
        self.inner = ctx.get_partitioned_state(es.ValueStateDescriptor("inner", int), 7, namespace_type=int)

    def process_element(self, row: Any, ctx: Any) -> None:
        if row.n < 0:
            for state in (self.value, self.elements, self.pairs, self.largest, self.mean, self.inner):
                state.clear()
            return
        held = self.value.value() or []
        held.append(row.n)
        self.value.update(held)  # on the heap what was read counts as written, in RocksDB it does not
        self.elements.add(row.n)
        self.pairs[str(row.n)] = row.n
        self.largest.add(row.n)
        self.mean.add(float(row.n))
        self.inner.update(row.n)


STATES = ("value", "elements", "pairs", "largest", "mean")


def look(harness: Harness, key: str) -> list[Any]:
    """All that a key has."""
    return [*(harness.state(name, key) for name in STATES), harness.state("inner", key, 7)]


def test_every_kind_of_state(state_backend: StateBackend) -> None:
    """Catches: a look that shows stamps, accumulators or views, or another key's state."""
    options: dict[str, Any] = {"schema": "k string, n int", "key": "k", "parallelism": 2}
    with Harness(EveryState(), state_backend=state_backend, **options) as harness:
        assert look(harness, "a") == [None, [], {}, None, None, None]
        harness.process(("a", 1), ("a", 3), ("b", 9))
        assert look(harness, "a") == [[1, 3], [1, 3], {"1": 1, "3": 3}, 3, 2.0, 3]
        assert harness.keys("pairs") == ["a", "b"]
        assert (harness.state("inner", "a"), harness.namespaces("inner", "a")) == (None, [7])
        harness.state("value", "a").append(5)
        harness.crash()
        assert look(harness, "a") == [[1, 3], [1, 3], {"1": 1, "3": 3}, 3, 2.0, 3]
        harness.process(("a", -1))
        assert look(harness, "a") == [None, [], {}, None, None, None]
        with raising(StateDeclarationError, state="other"):
            harness.state("other", "a")


class Seen(es.KeyedProcessFunction):
    """Remembers for an hour, from the last read on."""

    seen = es.value_state(int, ttl=es.TtlConfig("1 hour", update=es.TtlUpdate.ON_READ_AND_WRITE))
    days = es.map_state(int, int, ttl="2 hours")

    def process_element(self, row: Any, ctx: Any) -> Any:
        yield self.seen.value(), len(self.days)
        if row.write:
            self.seen.update(1)
            self.days[len(self.days)] = 1


def test_looking_touches_no_stamp(state_backend: StateBackend) -> None:
    """Catches: a test whose look keeps alive what should expire; what has expired and is shown."""
    options: dict[str, Any] = {"schema": "k string, write boolean", "key": "k", "output": "seen int, days int"}
    with Harness(Seen(), state_backend=state_backend, **options) as harness:
        harness.process(("a", True))
        harness.advance_processing_time("59 minutes")
        assert harness.state("seen", "a") == 1
        harness.process(("b", True))
        harness.advance_processing_time("1 minute")

        assert (harness.state("seen", "a"), harness.state("seen", "b")) == (None, 1)
        assert (harness.keys("seen"), harness.state("days", "a")) == (["b"], {0: 1})
        assert harness.process(("a", False), ("b", False)) == [(None, 1), (1, 1)]
        harness.advance_processing_time("1 hour")
        assert harness.process(("a", False), ("b", False)) == [(None, 0), (None, 1)]
        harness.check_invariants()


def test_what_has_expired_is_not_shown_before_it_is_removed() -> None:
    """Catches: a look that shows expired state until the clean-up has come by."""
    with Harness(Seen(), schema="k string, write boolean", key="k", output="seen int, days int") as harness:
        harness.process_batch([(f"k{number}", True) for number in range(1_200)])
        harness.advance_processing_time("1 hour")
        (operator,) = harness.statistics().operators

        assert isinstance(operator.backend, HeapBackendStatistics)
        assert operator.backend.states[0].entries > 0
        assert (harness.keys("seen"), harness.state("seen", "k1"), len(harness.keys("days"))) == ([], None, 1_200)


def test_a_stamp_that_differs_is_found() -> None:
    """Catches: a round trip that looks at values and not at how long they live."""
    with Harness(Seen(), schema="k string, write boolean", key="k", output="seen int, days int") as harness:
        harness.process(("a", True))
        (operator,) = harness._job.operators
        operator.backend.ttl_clock.processing_time = 1 + harness._clock.now_micros()
        operator.backend.set_current_key("a")
        descriptor = operator.backend.registered_states["seen"].descriptor
        assert operator.backend.get_partitioned_state(descriptor).value() == 1  # a read, which counts

        with raising(InvariantError, "seen", key="a"):
            harness.check_invariants()


def test_stored_state_that_differs_is_found(state_backend: StateBackend) -> None:
    """Catches: a round trip that compares nothing, so that a lost change would pass."""
    with totals(state_backend=state_backend, parallelism=2) as harness:
        harness.process(pay("a", 1, 0))
        harness.check_invariants()
        operator = next(o for o in harness._job.operators if list(o.backend.get_keys("total")))
        operator.backend.set_current_key("a")
        operator.backend.get_partitioned_state(es.ValueStateDescriptor("total", float, default=0.0)).update(9.0)

        with raising(InvariantError, "total.*9.0.*1.0", key="a"):
            harness.check_invariants()


def test_every_transaction_makes_the_round_trip() -> None:
    """Catches: a change behind the delta's back that only an explicit check would find."""
    with totals() as harness:
        harness.process(pay("a", 1, 0))
        backend = harness._job.operators[0].backend
        backend.set_current_key("a")
        queue = backend.timer_queues["event-time timers"]
        queue.register(5_000_000_000_000_000, "planted")
        # It is not in the delta of the next transaction, which starts from here.
        with raising(InvariantError, "planted", key="a"):
            harness.process(pay("b", 1, 0))
        assert harness.statistics().job.round_trips == 2


class WrongValue(es.KeyedProcessFunction):
    """Puts into state what is not of its type, deep inside."""

    pairs = es.value_state(dict[str, int])

    def process_element(self, row: Any, ctx: Any) -> None:
        self.pairs.update({"x": "y"} if row.k == "bad" else {"x": 1})  # type: ignore[dict-item]


@pytest.mark.reliability(28)
def test_a_value_that_does_not_survive_its_codec_fails_the_element(state_backend: StateBackend) -> None:
    """Catches: a value of the wrong type that is only found at the next restore."""
    with Harness(WrongValue(), schema="k string", key="k", state_backend=state_backend) as harness:
        harness.process(("good",))
        with raising(es.EmberstateError, state="pairs"):
            harness.process(("bad",))

        assert harness.keys("pairs") == ["good"]
        harness.process(("fine",))
        assert harness.keys("pairs") == ["fine", "good"]


class Rules(es.KeyedBroadcastProcessFunction):
    """Applies the newest rules to rows."""

    rules = es.broadcast_state(str, list[int])
    seen = es.value_state(int, default=0)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None:
        if row.limit < 0:
            raise ValueError("no such limit")
        self.rules[row.rule] = [*self.rules.get(row.rule, []), row.limit]

    def process_element(self, row: Any, ctx: Any) -> Any:
        self.seen.update(self.seen.value() + 1)
        for rule, limits in sorted(self.rules.items()):
            if row.n > limits[-1]:
                yield row.k, rule, self.seen.value()


def rules(**options: Any) -> Harness:
    """A harness around `Rules`."""
    return Harness(
        Rules(),
        schema="k string, n int",
        key="k",
        broadcast="rule string, limit int",
        output="k string, rule string, seen int",
        **options,
    )


@pytest.mark.parametrize("parallelism", [1, 3])
def test_broadcast_state(parallelism: int, state_backend: StateBackend) -> None:
    """Catches: slots with different rules, rules that a crash or a rescale loses, a failed broadcast row that some
    slots keep."""
    cards = [(f"k{number}", 10) for number in range(9)]
    with rules(parallelism=parallelism, state_backend=state_backend) as harness:
        harness.process_broadcast(("high", 5))
        assert len(harness.process_batch(cards)) == 9
        with pytest.raises(UserFunctionError, match="no such limit"):
            harness.process_batch(cards, broadcast=[("low", 1), ("high", -1)])
        assert harness.broadcast_state("rules") == {"high": [5]}
        assert len(harness.process_batch(cards, broadcast=[("low", 1)])) == 18
        harness.crash()
        assert len(harness.process_batch(cards)) == 18
        harness.restore(parallelism=2)
        harness.process_broadcast(("high", 100))
        assert sorted(harness.process_batch(cards)) == [(card, "low", 4) for card, _ in cards]
        assert harness.broadcast_state("rules") == {"high": [5, 100], "low": [1]}
        with raising(StateDeclarationError, state="other"):
            harness.broadcast_state("other")
        harness.check_invariants()


@pytest.mark.parametrize("when", ["before prepare", "after prepare", "after commit"])
def test_a_crash_with_broadcast_rows(when: Any, state_backend: StateBackend) -> None:
    """Catches: broadcast rows applied twice, or not at all, when their transaction crashes."""
    with rules(parallelism=3, state_backend=state_backend) as harness:
        harness.process_broadcast(("high", 5))
        harness.crash(when)
        harness.process_batch([("a", 6), ("b", 6)], broadcast=[("high", 4)])

        assert harness.broadcast_state("rules") == {"high": [5, 4]}
        assert sorted(harness.output) == [("a", "high", 1), ("b", "high", 1)]


def test_time_to_live_with_a_clock_set_back(state_backend: StateBackend) -> None:
    """Catches: stored state without what had expired, while the live state shows it again after a step back."""
    options: dict[str, Any] = {"schema": "k string, write boolean", "key": "k", "output": "seen int, days int"}
    with Harness(Seen(), state_backend=state_backend, **options) as harness:
        harness.process(("a", True))
        harness.advance_processing_time("3 hours")
        for number in range(8):  # long enough for a base
            harness.process((f"x{number}", True))
        harness.advance_processing_time(-timedelta(hours=3))
        harness.process(("a", False))
