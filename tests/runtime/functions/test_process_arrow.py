"""`process_arrow` and column states: the results and state of a dict, whatever is done to the job."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import emberstate as es
from emberstate.errors import (
    LifecycleError,
    RestoreRefusedError,
    RowTypeError,
    StateDeclarationError,
    UserFunctionError,
)
from emberstate.testing import Harness
from tests.effort import examples
from tests.raising import raising

SCHEMA = "card string, amount double, cents bigint"
OUTPUT = "card string, total double, n int, cents bigint, last double, seen boolean"


@dataclasses.dataclass
class Stats:
    """What is kept of a card."""

    n: int = 0
    cents: int = 0
    last: float | None = None
    seen: bool = False
    word: str = "none"


class Totals(es.KeyedProcessFunction):
    """Totals in columns; an amount of -1 removes what is kept of the card, when all rows of the batch are counted."""

    total = es.column_state(float, default=0.5)
    stats = es.column_state(Stats)

    def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> pa.RecordBatch:
        amounts = batch.column("amount").to_numpy(zero_copy_only=False)
        self.total.add_at(keys.handles, np.nan_to_num(amounts))
        self.stats["n"].add_at(keys.handles, 1)
        self.stats["cents"].add_at(keys.handles, batch.column("cents"))
        self.stats["last"].put_many(keys.handles, batch.column("amount"))
        self.stats["word"].put_many(keys.distinct, batch.column("card").take(pa.array(keys.first)))
        known = self.stats.get_many(keys.distinct)
        self.stats["seen"].put_many(keys.distinct, known["n"] > 1)
        removed = np.unique(keys.handles[np.nan_to_num(amounts) == -1.0])
        made = pa.record_batch(
            {
                "card": keys.column("card"),
                "total": self.total.get_many(keys.distinct),
                "n": known["n"],
                "cents": known["cents"],
                "last": pa.array(known["last"]),
                "seen": self.stats["seen"].get_many(keys.distinct),
            }
        )
        self.total.remove_many(removed)
        self.stats.remove_many(removed)
        return made


class Model:
    """The same with a dict, row by row."""

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        self.stats: dict[str, Stats] = {}

    def batch(self, rows: Sequence[tuple[str, float | None, int]]) -> list[tuple[Any, ...]]:
        """The rows that come out."""
        removed = set()
        for card, amount, cents in rows:
            old = self.stats.get(card, Stats())
            self.total[card] = self.total.get(card, 0.5) + (amount or 0.0)
            self.stats[card] = Stats(old.n + 1, old.cents + cents, amount, old.n + 1 > 1, card)
            if amount == -1.0:
                removed.add(card)
        made = [
            (card, self.total[card], stats.n, stats.cents, stats.last, stats.seen)
            for card in dict.fromkeys(card for card, _, _ in rows)
            for stats in [self.stats[card]]
        ]
        for card in removed:
            del self.total[card], self.stats[card]
        return made


def check_state(harness: Harness, model: Model) -> None:
    """Compare what is stored with the model."""
    assert harness.keys("total") == sorted(model.total)
    assert harness.keys("stats") == sorted(model.stats)
    for card, total in model.total.items():
        assert harness.state("total", card) == total
        assert harness.state("stats", card) == model.stats[card]


def make_harness(parallelism: int = 1, backend: Any = None, function: Any = None) -> Harness:
    """One for `Totals`."""
    return Harness(
        Totals() if function is None else function,
        schema=SCHEMA,
        key="card",
        output=OUTPUT,
        parallelism=parallelism,
        max_parallelism=8,
        state_backend=backend,
    )


amounts = st.sampled_from([None, 0.1, 0.2, 1e17, -1.0, 2.5])
row = st.tuples(st.sampled_from("abcdefgh"), amounts, st.integers(-(2**40), 2**40))
step = st.one_of(
    st.lists(row, max_size=30),
    st.sampled_from(["now", "before prepare", "after prepare", "after commit"]),
    st.integers(1, 4),
)


@given(st.lists(step, max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_like_a_dict(steps: list[Any]) -> None:
    """Catches: sums out of order, a last value that is not the last, an entry that a delta, a kill, a roll-back or
    another parallelism loses or brings back."""
    model = Model()
    with make_harness() as harness:
        for step in steps:
            if isinstance(step, int):
                harness.restore(parallelism=step)
            elif isinstance(step, str):
                harness.crash(step)  # type: ignore[arg-type]
            elif step:
                found = harness.process_batch(step)
                assert sorted(found, key=repr) == sorted(model.batch(step), key=repr)
        check_state(harness, model)
        harness.check_invariants()


@pytest.mark.parametrize("seed", [1, 2])
def test_rocksdb_has_the_same(tmp_path: Path, seed: int) -> None:
    """Catches: a backend without columns that loses a value, a default, or what was removed."""
    print(f"seed {seed}")  # noqa: T201
    chance, model = random.Random(seed), Model()
    backend = es.RocksDBStateBackend(str(tmp_path / "location"), local_directory=str(tmp_path / "local"))
    with make_harness(2, backend) as harness:
        for number in range(6):
            rows = [(chance.choice("abcdef"), chance.choice([None, 0.5, -1.0, 3.0]), number) for _ in range(12)]
            assert sorted(harness.process_batch(rows), key=repr) == sorted(model.batch(rows), key=repr)
            if number == 3:
                harness.crash()
                harness.restore(parallelism=1)
        check_state(harness, model)


class Counted(es.KeyedProcessFunction):
    """The same state as `Counting`, by single rows."""

    n = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
        self.n.update(self.n.value() + 1)
        return ctx.key, self.n.value()


class Counting(es.KeyedProcessFunction):
    """Counts rows."""

    n = es.column_state(int, default=0)

    def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> pa.Table:
        self.n.add_at(keys.handles, 1)
        return pa.table({"n": self.n.get_many(keys.distinct), "card": keys.column("card")})


def counting(function: Any, **options: Any) -> Harness:
    """A harness of a function that counts."""
    return Harness(function, schema="card string", key="card", output="card string, n int", **options)


def test_a_function_goes_over_from_rows_to_columns_and_back() -> None:
    """Catches: columns that are stored in another way than values."""
    with counting(Counted()) as harness:
        harness.process(("ann",), ("bob",), ("ann",))
        harness.restore(function=Counting())
        assert harness.process_batch([("ann",), ("eve",), ("ann",)]) == [("ann", 4), ("eve", 1)]
        harness.restore(function=Counted())
        assert harness.process(("ann",), ("eve",)) == [("ann", 5), ("eve", 2)]


def test_a_field_more_and_one_that_may_be_null() -> None:
    """Catches: a changed record that columns read as the old one."""

    @dataclasses.dataclass
    class Old:
        n: int = 0

    @dataclasses.dataclass
    class New:
        n: int | None = 0
        most: float | None = None

    def made(record: type[Any]) -> es.KeyedProcessFunction:
        class Changing(es.KeyedProcessFunction):
            kept = es.column_state(record)

            def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> None:
                self.kept["n"].add_at(keys.handles, 1)

        return Changing()

    with Harness(made(Old), schema="card string", key="card") as harness:
        harness.process(("ann",), ("bob",))
        harness.restore(function=made(New))
        harness.process(("ann",))
        assert harness.state("kept", "ann") == New(2, None)
        with raising(RestoreRefusedError):
            harness.restore(function=made(Old))


def test_readers_see_a_value_state(tmp_path: Path) -> None:
    """Catches: columns that a reader beside the job takes for something else, in a base or in a delta."""
    backend = es.FsStateBackend(str(tmp_path / "location"))
    with make_harness(2, backend) as harness:
        model = Model()
        for number in range(3):
            rows = [(card, float(number), number) for card in "abc"[number:]]
            model.batch(rows)
            harness.process_batch(rows)
    location = str(tmp_path / "location")
    totals = es.read_state(location, "total").to_pylist()
    assert {row["key"]: row["value"] for row in totals} == model.total
    stats = es.read_state(location, "stats").to_pylist()
    assert {row["key"]: Stats(**row["value"]) for row in stats} == model.stats


@pytest.mark.parametrize("update", list(es.TtlUpdate))
@pytest.mark.parametrize("visibility", list(es.TtlVisibility))
@pytest.mark.parametrize("rocksdb", [False, True])
def test_what_has_expired(
    update: es.TtlUpdate, visibility: es.TtlVisibility, rocksdb: bool, tmp_path: Path
) -> None:
    """Catches: columns in which a value lives longer, or shorter, than in a value state that is read for each row."""
    ttl = es.TtlConfig("10 seconds", update, visibility)

    class Arrow(es.KeyedProcessFunction):
        n = es.column_state(int, default=0, ttl=ttl)

        def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> pa.RecordBatch:
            added = batch.column("amount").to_numpy()
            self.n.add_at(keys.handles[added > 0], added[added > 0])
            return pa.record_batch({"card": keys.column("card"), "n": self.n.get_many(keys.distinct)})

    class Rows(es.KeyedProcessFunction):
        n = es.value_state(int, default=0, ttl=ttl)

        def process_element(self, row: Any, ctx: es.FunctionContext) -> Any:
            n = self.n.value()
            if row.amount:
                n += row.amount
                self.n.update(n)
            return ctx.key, n

    def run(function: Any, backend: Any) -> list[Any]:
        with Harness(
            function, schema="card string, amount int", key="card", output="card string, n int", state_backend=backend
        ) as harness:
            for seconds, card, amount in [
                (0, "a", 1), (0, "b", 2), (6, "a", 0), (6, "b", 1), (5, "a", 0), (0, "b", 0), (9, "a", 3), (9, "b", 0)
            ]:  # fmt: skip
                harness.advance_processing_time(f"{seconds} seconds")
                harness.process((card, amount))
            return [*harness.output, *[(card, harness.state("n", card)) for card in "ab"]]

    backend = es.RocksDBStateBackend(str(tmp_path / "l"), local_directory=str(tmp_path / "d")) if rocksdb else None
    assert run(Arrow(), backend) == run(Rows(), None)


def test_late_rows_do_not_come() -> None:
    """Catches: late rows that are counted as others, or not at all."""
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with counting(Counting()) as plain:  # without event time nothing is late
        assert plain.process_batch([("a",), ("a",)]) == [("a", 2)]
    with Harness(
        Counting(),
        schema="card string, ts timestamp",
        key="card",
        event_time="ts",
        output="card string, n int",
        late_output="late",
    ) as harness:
        harness.process_batch([("a", noon)])
        rows = [("a", noon - timedelta(seconds=1)), ("a", noon + timedelta(seconds=1)), ("b", noon)]
        assert harness.process_batch(rows) == [("b", 1), ("a", 2)]
        assert harness.side_output("late") == [("a", noon - timedelta(seconds=1))]
        assert (harness.late_rows, harness.late_rows_dropped) == (1, 1)


def test_keys_of_several_columns_and_floats() -> None:
    """Catches: 0.0 and -0.0 that are two keys, or a key that comes out in another form than it has in state."""

    class Keyed(es.KeyedProcessFunction):
        n = es.column_state(int, default=0)

        def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> pa.RecordBatch:
            self.n.add_at(keys.handles, 1)
            assert [keys.key(handle) for handle in range(len(keys))] == [
                (x, card) for x, card in zip(keys.column("x").to_pylist(), keys.column("card").to_pylist(), strict=True)
            ]
            with raising(RowTypeError, column="n"):
                keys.column("n")
            return pa.record_batch({"x": keys.column("x"), "n": self.n.get_many(keys.distinct)})

    with Harness(Keyed(), schema="x double, card string", key=["x", "card"], output="x double, n int") as harness:
        found = harness.process_batch([(-0.0, "a"), (0.0, "a"), (1.5, "b")])
        assert found == [(0.0, 2), (1.5, 1)]
        assert math.copysign(1, found[0].x) == 1


def test_only_the_columns_that_were_asked_for() -> None:
    """Catches: a function that sees the library's columns, or gets others than it named."""
    seen = []

    class Some(es.KeyedProcessFunction):
        def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> None:
            seen.append(batch.schema.names)

    for columns in (None, ["amount"]):
        with Harness(Some(), schema=SCHEMA, key="card", columns=columns) as harness:
            harness.process(("a", 1.0, 2))
    assert seen == [["card", "amount", "cents"], ["amount"]]


class Doing(es.KeyedProcessFunction):
    """Calls a function with itself, the batch and the keys."""

    n = es.column_state(int, default=0)
    stats = es.column_state(Stats)

    def __init__(self, do: Any) -> None:
        self.do = do

    def process_arrow(self, batch: pa.RecordBatch, keys: es.BatchKeys) -> Any:
        return self.do(self, batch, keys)


def run(do: Any, output: str | None = "card string, n int") -> list[Any]:
    """What comes out of two rows of one card and one of another, in one batch; state stays as it was, if it raises."""
    with Harness(Doing(do), schema="card string", key="card", output=output) as harness:
        try:
            return harness.process_batch([("a",), ("b",), ("a",)])
        except Exception:
            assert harness.keys("n") == harness.keys("stats") == []
            harness.check_invariants()
            raise


BAD: list[tuple[str, Any, dict[str, Any]]] = [
    ("too large a handle", lambda f, b, k: f.n.get_many([0, 2]), {"state": "n", "found": 2}),
    ("a negative handle", lambda f, b, k: f.n.put_many([-1], [1]), {"state": "n", "found": -1}),
    ("no ints", lambda f, b, k: f.n.get_many([0.0]), {"state": "n", "expected": "handles"}),
    ("a mask", lambda f, b, k: f.n.get_many(np.array([True, False])), {"state": "n", "expected": "handles"}),
    ("two dimensions", lambda f, b, k: f.n.get_many([[0]]), {"state": "n", "expected": "handles"}),
    ("too few values", lambda f, b, k: f.n.put_many(k.handles, [1, 2]), {"state": "n", "expected": 3, "found": 2}),
    ("too many values", lambda f, b, k: f.n.add_at(k.distinct, np.ones(3, int)), {"state": "n", "expected": 2}),
    ("floats", lambda f, b, k: f.n.put_many([0], np.array([1.5])), {"state": "n", "found": "float64"}),
    ("a float", lambda f, b, k: f.n.add_at(k.handles, 1.0), {"state": "n", "expected": "int64"}),
    ("a bool", lambda f, b, k: f.n.put_many([0], True), {"state": "n"}),
    ("texts", lambda f, b, k: f.n.put_many([0], pa.array(["1"])), {"state": "n", "found": "string"}),
    ("null", lambda f, b, k: f.n.put_many([0, 1], pa.array([1, None])), {"state": "n"}),
    ("None", lambda f, b, k: f.n.put_many([0], None), {"state": "n"}),
    ("large", lambda f, b, k: f.n.put_many([0], np.array([2**63], np.uint64)), {"state": "n"}),
    ("larger", lambda f, b, k: f.n.put_many([0], [2**63]), {"state": "n"}),
    ("a sum", lambda f, b, k: f.n.add_at([0, 1, 1], [1, 2**62, 2**62]), {"state": "n", "key": "b", "found": 2**63}),
    ("rounding", lambda f, b, k: f.stats["last"].put_many([0], pa.array([2**53 + 1])), {"field": "last"}),
    ("null added", lambda f, b, k: f.stats["last"].add_at([0], pa.array([None], pa.float64())), {"field": "last"}),
    ("bools added", lambda f, b, k: f.stats["seen"].add_at([0], True), {"field": "seen", "found": "bool"}),
    ("texts added", lambda f, b, k: f.stats["word"].add_at([0], "x"), {"field": "word", "found": "str"}),
    ("no text", lambda f, b, k: f.stats["word"].put_many([0], [1]), {"field": "word", "found": "1"}),
    ("no text at all", lambda f, b, k: f.stats["word"].put_many([0], [None]), {"field": "word"}),
    ("numbers", lambda f, b, k: f.stats["word"].put_many([0], np.array([1])), {"field": "word", "found": "int64"}),
    ("no field", lambda f, b, k: f.stats["m"].get_many([0]), {"state": "stats", "field": "m"}),
    ("a field of none", lambda f, b, k: f.n["n"].get_many([0]), {"state": "n", "field": "n"}),
    ("no record", lambda f, b, k: f.stats.put_many([0], [1]), {"state": "stats", "found": "list"}),
    ("half a record", lambda f, b, k: f.stats.put_many([0], {"n": [1]}), {"state": "stats", "found": ["n"]}),
    ("a record added", lambda f, b, k: f.stats.add_at([0], [1]), {"state": "stats"}),
    ("assigned", lambda f, b, k: setattr(f, "n", 1), {"state": "n"}),
]


@pytest.mark.parametrize(("do", "place"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_what_is_refused(do: Any, place: dict[str, Any]) -> None:
    """Catches: a wrong handle, length or type that changes another key's value, or is cut, in silence."""
    with raising(UserFunctionError, **place):
        run(do)


def test_a_refusal_that_is_caught_has_changed_nothing() -> None:
    """Catches: half of a call that stays when the other half was refused."""

    def do(function: Any, batch: Any, keys: Any) -> pa.RecordBatch:
        function.n.add_at(keys.handles, 1)
        for call, values in ((function.n.add_at, [1, 2**63 - 1]), (function.n.put_many, [5, "x"])):
            with pytest.raises(es.EmberstateError):
                call([0, 1], values)
        with pytest.raises(es.EmberstateError):
            columns = {"n": [7], "cents": [7], "last": [7.0], "seen": [True], "word": [7]}
            function.stats.put_many([0], columns)
        assert not function.stats.contains_many(keys.distinct).any()
        return pa.record_batch({"card": keys.column("card"), "n": function.n.get_many(keys.distinct)})

    assert run(do) == [("a", 2), ("b", 1)]


def test_handles_belong_to_their_batch() -> None:
    """Catches: a handle of one batch that changes another key's state in the next, or state that is changed by nobody's
    batch."""
    kept: list[Any] = []

    def do(function: Any, batch: Any, keys: Any) -> None:
        if not kept:
            kept.extend([keys.handles[:1], function.n])
        else:
            function.n.put_many(kept[0], [1])

    with Harness(Doing(do), schema="card string", key="card") as harness:
        harness.process(("a",))
        with raising(UserFunctionError, state="n", word="another batch"):
            harness.process(("b",))
        for use in (kept[1].get_many, kept[1].remove_many, kept[1].contains_many):
            with raising(LifecycleError, state="n"):
                use([0])
        with raising(LifecycleError, state="n"):
            kept[1].add_at([0], 1)


BAD_OUTPUTS: list[tuple[Any, dict[str, Any]]] = [
    ([("a", 1)], {"found": "list"}),
    ({"card": ["a"], "n": [1]}, {"found": "dict"}),
    (pa.record_batch({"card": ["a"]}), {"found": ["card"]}),
    (pa.record_batch({"card": ["a"], "n": [1], "m": [1]}), {"found": ["card", "n", "m"]}),
    (pa.record_batch({"card": ["a"], "n": ["1"]}), {"column": "n", "found": "string"}),
    (pa.record_batch({"card": ["a"], "n": [1.0]}), {"column": "n", "found": "double"}),
    (pa.record_batch({"card": ["a"], "n": [2**31]}), {"column": "n"}),
    (pa.record_batch({"card": [1], "n": [1]}), {"column": "card"}),
]


@pytest.mark.parametrize(("made", "place"), BAD_OUTPUTS)
def test_an_output_that_does_not_fit(made: Any, place: dict[str, Any]) -> None:
    """Catches: rows of other columns or types than were declared, or rounded ones."""

    def do(function: Any, batch: Any, keys: Any) -> Any:
        function.n.add_at(keys.handles, 1)
        return made

    with raising(RowTypeError, **place):
        run(do)


def test_outputs_that_fit() -> None:
    """Catches: a batch that is refused though nothing of it would change."""
    words = pa.array(["a", "b"]).dictionary_encode()
    for made in (
        pa.record_batch({"n": pa.array([1, 2], pa.int8()), "card": words}),
        pa.table({"card": pa.chunked_array([["a"], ["b"]], pa.large_string()), "n": pa.array([1, 2], pa.uint64())}),
    ):
        assert run(lambda f, b, k, made=made: made) == [("a", 1), ("b", 2)]
    assert run(lambda f, b, k: None) == []
    assert run(lambda f, b, k: pa.record_batch({"x": [0.5]}), "x float") == [(0.5,)]
    with raising(RowTypeError, column="x"):
        run(lambda f, b, k: pa.record_batch({"x": [0.1]}), "x float")


def function_of(**members: Any) -> es.KeyedProcessFunction:
    """A function with these members."""
    made: es.KeyedProcessFunction = type("Made", (es.KeyedProcessFunction,), members)()
    return made


def _nothing(self: Any, *arguments: Any) -> None:
    return None


async def _async(self: Any, batch: Any, keys: Any) -> None:
    return None


@dataclasses.dataclass
class NoDefault:
    """Cannot be made without arguments."""

    n: int


@dataclasses.dataclass
class Nested:
    """Has a field that is no column."""

    items: list[int] = dataclasses.field(default_factory=list)


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"process_element": _nothing}, {"option": "process_element"}),
        ({"process_batch": _nothing}, {"option": "process_batch"}),
        ({"on_timer": _nothing}, {"option": "on_timer"}),
        ({"process_late_element": _nothing}, {"option": "process_late_element"}),
        ({"total": es.value_state(int)}, {"state": "total"}),
        ({"process_arrow": _async}, {"option": "process_arrow", "found": "async"}),
    ],
)
def test_functions_that_cannot_run(members: dict[str, Any], place: dict[str, Any]) -> None:
    """Catches: a method that is never called, or a state that cannot be used, without a word."""
    with raising(StateDeclarationError, **place):
        Harness(function_of(**{"process_arrow": _nothing, **members}), schema="card string", key="card")


def test_a_column_state_needs_process_arrow() -> None:
    """Catches: a state that a function of rows cannot use."""
    with raising(StateDeclarationError, state="n"):
        members = {"process_element": _nothing, "n": es.column_state(int, default=0)}
        Harness(function_of(**members), schema="card string", key="card")


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        (lambda: es.column_state(int), {"option": "default"}),
        (lambda: es.column_state(list[int]), {"expected": "int, float, bool, str or a dataclass of these"}),
        (lambda: es.column_state(bytes, default=b""), {"state": "n"}),
        (lambda: es.column_state(NoDefault), {"option": "default"}),
        (lambda: es.column_state(Nested), {"field": "items"}),
    ],
)
def test_states_that_cannot_be_columns(declared: Any, place: dict[str, Any]) -> None:
    """Catches: a declaration that fails only when the first row comes."""
    with raising(StateDeclarationError, **place):
        function_of(process_arrow=_nothing, n=declared())
