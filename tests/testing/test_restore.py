"""Snapshots, restores, rescaling, changed programs and crashes in the middle of a test."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.checkpoint.backends import StateBackend
from emberstate.errors import RestoreRefusedError, StateDeclarationError, UserFunctionError
from emberstate.testing import Harness
from tests.effort import examples
from tests.raising import raising
from tests.testing.support import Totals, at, pay, totals
from tests.testing.test_rows import joined

CARDS = [f"c{number}" for number in range(12)]


def test_restore_goes_back_to_a_snapshot(state_backend: StateBackend) -> None:
    """Catches: state of after the snapshot that survives, timers that fire twice, outputs that are taken back."""
    with totals(state_backend=state_backend, parallelism=2) as harness:
        harness.process(*(pay(card, 1, 0) for card in CARDS))
        first = harness.snapshot()
        harness.process(*(pay(card, 5, 1) for card in CARDS))
        second = harness.snapshot()
        harness.process(*(pay("new", 1, 2) for _ in range(6)))
        harness.restore(first)
        assert [harness.state("total", card) for card in CARDS] == [1.0] * 12
        assert harness.state("total", "new") is None
        harness.process(pay("c0", 2, 3))
        assert harness.state("total", "c0") == 3.0
        harness.restore(second)
        assert [harness.state("total", card) for card in CARDS] == [6.0] * 12
        harness.restore(first)

        assert len(harness.advance_watermark(at(60))) == 12
        assert len(harness.output) == 12 + 12 + 6 + 1 + 12


@pytest.mark.parametrize("path", [(1, 4), (4, 1), (3, 2, 5, 1)], ids=str)
def test_restore_at_another_parallelism(path: tuple[int, ...], state_backend: StateBackend) -> None:
    """Catches: keys that are lost, doubled or in the wrong slot after rescaling."""
    with totals(state_backend=state_backend, parallelism=path[0]) as harness:
        for number, parallelism in enumerate(path):
            harness.restore(parallelism=parallelism)
            harness.process_batch([pay(card, 1, number) for card in CARDS])
            assert len(harness.statistics().operators) == parallelism

        assert [harness.state("total", card) for card in CARDS] == [float(len(path))] * 12
        assert len(harness.timers()) == 12
        harness.check_invariants()


class Renamed(es.KeyedProcessFunction):
    """`Totals` after a change: a state renamed, one given up, one new."""

    sum = es.value_state(float, default=0.0)
    shops = es.map_state(str, int)
    fresh = es.value_state(str)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        self.fresh.update("here")
        yield row.card, self.sum.value() + row.amount

    def on_timer(self, timer: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        yield timer.key, -1.0


def test_changed_code(state_backend: StateBackend) -> None:
    """Catches: a restore into changed code that guesses, or a dry run that says something else than the restore."""
    choices: dict[str, Any] = {"rename_states": {"total": "sum"}, "drop_states": ["recent"]}
    with totals(state_backend=state_backend) as harness:
        harness.process(pay("a", 2, 0), pay("b", 3, 0))
        before = harness.snapshot()
        assert harness.verdict(function=Renamed()).kind == "refused"
        with raising(RestoreRefusedError, "recent"):
            harness.restore(function=Renamed(), output="card string, sum double")
        assert harness.process(pay("a", 1, 1)) == [("a", "sum", 3.0)]  # what ran goes on

        verdict = harness.verdict(before, function=Renamed(), **choices)
        assert {state.name: state.kind for state in verdict.states if not state.name.startswith("timers/")} == {
            "fresh": "new", "recent": "dropped", "shops": "compatible", "sum": "migrates",
        }  # fmt: skip
        harness.restore(before, function=Renamed(), output="card string, sum double", parallelism=2, **choices)
        assert harness.process(pay("a", 10, 2)) == [("a", 12.0)]
        harness.crash()
        assert harness.process(pay("b", 10, 2)) == [("b", 13.0)]
        assert harness.state("fresh", "a") == "here"
        assert len(harness.close_input()) == 2


class Fewer(es.KeyedProcessFunction):
    """`Totals` without most of its states."""

    total = es.value_state(float, default=0.0)

    def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
        self.total.update(self.total.value() + row.amount)
        yield row.card, "fewer", self.total.value()

    def on_timer(self, timer: Any, ctx: Any) -> None:
        self.total.clear()


def test_kept_states_come_back(state_backend: StateBackend) -> None:
    """Catches: states that a program without them loses, though it was told to keep them."""
    with totals(state_backend=state_backend) as harness:
        harness.process(*(pay(card, 1, 0) for card in CARDS))
        harness.restore(function=Fewer(), keep_states=["recent", "shops"], parallelism=3)
        harness.process(*(pay(card, 1, 1) for card in CARDS))
        harness.crash()
        harness.process(*(pay(card, 1, 2) for card in CARDS))
        harness.restore(function=Totals(), parallelism=2)

        assert [harness.state("total", card) for card in CARDS] == [3.0] * 12
        assert [harness.state("shops", card) for card in CARDS] == [{"s": 1}] * 12


@pytest.mark.parametrize("when", ["now", "before prepare", "after prepare", "after commit"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_crash_is_seen_once(when: Any, parallelism: int, state_backend: StateBackend) -> None:
    """Catches: a row that counts twice or not at all, or outputs that come twice, when its transaction crashes."""
    with totals(state_backend=state_backend, parallelism=parallelism) as harness:
        harness.process(pay("a", 1, 0))
        harness.crash(when)
        made = harness.process_batch([pay("a", 2, 1), pay("b", 4, 1)])
        harness.process(pay("a", 8, 2))

        assert sorted(made) == [("a", "sum", 3.0), ("b", "sum", 4.0)]
        assert (harness.state("total", "a"), harness.state("total", "b")) == (11.0, 4.0)
        assert (len(harness.output), harness.timers_fired) == (4, 0)
        statistics = harness.statistics().job
        assert (statistics.crashes, statistics.redeliveries) == (1, int(when == "after commit"))
        assert harness._job.counts["rows"] == 4
        assert len(harness.timers()) == 2


def test_a_rerun_sees_the_times_of_the_first_run() -> None:
    """Catches: a batch that is run again at another processing time or watermark than the first time."""

    class Times(es.KeyedProcessFunction):
        """Says what time it is."""

        def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
            yield ctx.processing_time, ctx.watermark

    class Slow(Times):
        """Takes so long that the clock has moved when it has to run again."""

        def process_element(self, row: Any, ctx: Any) -> Iterator[tuple[Any, ...]]:
            clock.advance(1_000_000)
            yield from super().process_element(row, ctx)

        def __deepcopy__(self, memo: Any) -> Any:
            return self

    with Harness(
        Slow(), schema="k string, ts timestamp", key="k", event_time="ts", output="now timestamp, mark timestamp"
    ) as harness:
        clock = harness._clock
        harness.process(("a", at(0)))
        started = harness.processing_time
        harness.crash("after prepare")

        assert harness.process(("a", at(5))) == [(started, at(5))]
        assert harness.processing_time == started + timedelta(seconds=2)


@pytest.mark.parametrize("when", ["before prepare", "after prepare", "after commit"])
def test_a_crash_with_two_inputs(when: Any, state_backend: StateBackend) -> None:
    """Catches: rows of one of two inputs that count twice, or not at all, after a crash."""
    with joined(state_backend=state_backend, parallelism=2) as harness:
        harness.process(("k", "a", at(0)))
        harness.crash(when)
        harness.process_batch([("k", "b", at(1))], second=[("k", 1, at(2))])
        harness.crash(when)
        assert harness.process2(("k", 2, at(3))) == [("k", "a,b", 2)]
        assert harness.output == [("k", "a,b", 1), ("k", "a,b", 2)]


def test_a_function_that_fails_in_the_transaction_that_crashes() -> None:
    """Catches: a crash that is still waiting, or half a transaction, when the function fails before it."""
    with totals() as harness:
        harness.process(pay("a", 1, 0))
        harness.crash("after prepare")
        with pytest.raises(UserFunctionError):
            harness.process(pay("a", -1, 1))
        assert harness.process(pay("a", 1, 1)) == [("a", "sum", 2.0)]
        assert harness.statistics().job.crashes == 0
        with raising(StateDeclarationError, option="when"):
            harness.crash("soon")  # type: ignore[arg-type]


class Life(es.KeyedProcessFunction):
    """Says when it is opened and closed."""

    def __init__(self, events: list[str]) -> None:
        self.events = events

    def __deepcopy__(self, memo: Any) -> Life:
        return Life(self.events)

    def open(self, ctx: Any) -> None:
        self.events.append("open")

    def close(self) -> None:
        self.events.append("close")

    def process_element(self, row: Any, ctx: Any) -> None:
        pass


def test_a_crash_closes_nothing_and_a_restore_does() -> None:
    """Catches: a crash that is kinder than a real one, or a stop that leaves functions open."""
    events: list[str] = []
    with Harness(Life(events), schema="k string", key="k") as harness:
        harness.process(("a",))
        events.clear()
        harness.crash()
        assert "close" not in events
        harness.process(("a",))
        events.clear()
        harness.restore()
        assert events.count("close") == 2  # that of the slot, and the one that is asked what it declares
        harness.process(("a",))
        events.clear()
    assert events == ["close", "close"]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-1, 9)), max_size=4)),
        st.tuples(st.just("batch"), st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(-1, 9)), max_size=6)),
        st.tuples(st.just("crash"), st.sampled_from(["now", "before prepare", "after prepare", "after commit"])),
        st.tuples(st.just("rescale"), st.integers(1, 5)),
        st.tuples(st.just("snapshot"), st.none()),
        st.tuples(st.just("back"), st.none()),
    ),
    max_size=12,
)


@pytest.mark.reliability(28)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_against_a_model(todo: list[tuple[str, Any]]) -> None:
    """Catches: any run of rows, failing rows, crashes, rescales and returns whose state differs from a plain dict's."""
    model: dict[str, float] = {}
    output: list[tuple[str, float]] = []
    saved: tuple[Any, dict[str, float]] | None = None
    with totals() as harness:
        for what, argument in todo:
            if what == "rows":
                for card, amount in argument:
                    if amount < 0:
                        with pytest.raises(UserFunctionError):
                            harness.process(pay(card, amount, 0))
                    else:
                        harness.process(pay(card, amount, 0))
                        model[card] = model.get(card, 0) + amount
                        output.append((card, model[card]))
            elif what == "batch" and any(amount < 0 for _, amount in argument):
                with pytest.raises(UserFunctionError):
                    harness.process_batch([pay(card, amount, 0) for card, amount in argument])
            elif what == "batch":
                harness.process_batch([pay(card, amount, 0) for card, amount in argument])
                for card, amount in argument:
                    model[card] = model.get(card, 0) + amount
                    output.append((card, model[card]))
            elif what == "crash":
                harness.crash(argument)
            elif what == "rescale":
                harness.restore(parallelism=argument)
            elif what == "snapshot":
                saved = harness.snapshot(), dict(model)
            elif saved is not None:
                harness.restore(saved[0])
                model = dict(saved[1])
            assert {card: harness.state("total", card) for card in harness.keys("total")} == model
        assert sorted((row.card, row.total) for row in harness.output) == sorted(output)
        assert {timer.key for timer in harness.timers()} == set(model)
        harness.check_invariants()
