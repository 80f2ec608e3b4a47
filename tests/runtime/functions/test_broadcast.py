"""Broadcast state: the same in every slot, written by broadcast rows alone, rolled back and restored."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import LifecycleError, StateDeclarationError, StateTypeError, UserFunctionError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema, range_for_slot
from emberstate.runtime.functions.declared_states import broadcast_state, value_state
from emberstate.runtime.functions.function import KeyedBroadcastProcessFunction, KeyedProcessFunction, declarations
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.rows.arrow_rows import batch_of
from emberstate.runtime.rows.row import RowType
from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from tests.raising import raising
from tests.runtime.support import opened

TOTAL = ValueStateDescriptor("total", int, default=0)


class Limits(KeyedBroadcastProcessFunction):
    """Rows above a limit of their kind, which rules change."""

    limits = broadcast_state(str, list[int])
    total = value_state(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        if callable(row):
            return row(self, ctx)
        kind, amount = row
        self.total.update(self.total.value() + amount)
        limit = self.limits.get(kind, [0])[-1]
        return [(ctx.key, amount, limit)] if amount > limit else None

    def process_broadcast_element(self, row: Any, ctx: Any) -> Any:
        if callable(row):
            return row(self, ctx)
        kind, limit = row
        if limit is None:
            self.limits.remove(kind)
        else:
            self.limits.setdefault(kind, []).append(limit)
        return None

    def on_timer(self, timer: Any, ctx: Any) -> Any:
        yield "timer", timer.name, ctx.key


def test_rules_apply() -> None:
    """Catches: rules that keyed rows do not see, and changes to a rule that go lost."""
    operator = opened(Limits())
    operator.begin(0)
    for rule in (("a", 10), ("a", 5), ("b", 3)):
        operator.process_broadcast(rule)
    operator.process("k", ("a", 7))
    operator.process("k", ("a", 4))
    operator.process_broadcast(("b", None))
    operator.process("l", ("b", 1))

    assert operator.end().main == [("k", 7, 5), ("l", 1, 0)]
    assert [(d.descriptor.name, d.broadcast) for d in declarations(Limits())] == [("limits", True), ("total", False)]


def test_rules_by_batch() -> None:
    """Catches: broadcast rows of a record batch that come in another order."""
    operator = opened(Limits(), broadcast_row_type="kind string, top int")
    operator.begin(0)
    operator.process_broadcast_batch(batch_of([("a", 9), ("a", 1)], RowType.of("kind string, top int")))
    operator.process("k", ("a", 2))

    assert operator.end().main == [("k", 2, 1)]


@pytest.mark.parametrize(
    "write",
    [
        lambda f, c: f.limits.put("a", [1]),
        lambda f, c: f.limits.put_all({"a": [1]}),
        lambda f, c: f.limits.update({"a": [1]}),
        lambda f, c: f.limits.__setitem__("a", [1]),
        lambda f, c: f.limits.remove("a"),
        lambda f, c: f.limits.clear(),
        lambda f, c: f.limits.pop("a"),
        lambda f, c: f.limits.__delitem__("a"),
        lambda f, c: f.limits.setdefault("z", [1]),
    ],
)
def test_keyed_rows_only_read(write: Any) -> None:
    """Catches: a slot whose rules differ from the others' because one of its rows changed them."""
    operator = opened(Limits())
    operator.begin(0)
    operator.process_broadcast(("a", 10))
    with raising(UserFunctionError, key="k") as caught:
        operator.process("k", write)
    cause = caught.value.__cause__
    assert isinstance(cause, StateTypeError) and cause.state == "limits"


def test_a_rule_changed_in_place_by_a_keyed_row() -> None:
    """Catches: a change to a list that was read, which would make this slot's rules different."""
    operator = opened(Limits())
    operator.begin(0)
    operator.process_broadcast(("a", 10))
    operator.process("k", lambda f, c: f.limits["a"].append(99) or f.limits.get("a").append(98))
    operator.process("k", lambda f, c: next(iter(f.limits.values())).append(97))
    operator.process("k", lambda f, c: [(f.limits["a"], dict(f.limits), len(f.limits), "a" in f.limits)])

    assert operator.end().main == [([10], {"a": [10]}, 1, True)]


def test_no_key_while_a_broadcast_row_is_handled() -> None:
    """Catches: keyed state of some key or other being changed by a broadcast row."""
    for use in (lambda f, c: f.total.value(), lambda f, c: c.key, lambda f, c: c.timers.event.register("t", 1)):
        operator = opened(Limits())
        operator.begin(0)
        operator.process("k", ("a", 1))
        with pytest.raises(UserFunctionError) as caught:
            operator.process_broadcast(use)
        assert isinstance(caught.value.__cause__, LifecycleError)


def test_all_keys_from_a_broadcast_row() -> None:
    """Catches: keys that are left out, and timers of theirs that are not registered."""
    operator = opened(Limits())

    def to_all(function: Any, ctx: Any) -> Any:
        def each(key: str, total: Any) -> None:
            total.update(total.value() + 100)
            ctx.timers.event.register("reset", 5)

        ctx.apply_to_keyed_state(TOTAL, each)

    operator.begin(0)
    operator.process("k", ("a", 1))
    operator.process("l", ("a", 2))
    operator.process_broadcast(to_all)
    operator.advance_watermark(5)
    operator.process("k", lambda f, c: (f.total.value(),))
    assert operator.end().main[2:] == [("timer", "reset", "k"), ("timer", "reset", "l"), (101,)]
    operator.begin(0)
    with raising(UserFunctionError, option="apply_to_keyed_state"):
        operator.process("k", to_all)


def test_by_descriptor() -> None:
    """Catches: broadcast state that can only be declared; a second kind of state where maps alone are."""

    class ByDescriptor(Limits):
        def open(self, ctx: Any) -> None:
            self.rules = ctx.get_broadcast_state(MapStateDescriptor("rules", str, int))

        def process_broadcast_element(self, row: Any, ctx: Any) -> Any:
            self.rules["x"] = row

        def process_element(self, row: Any, ctx: Any) -> Any:
            if row == "value":
                ctx.get_broadcast_state(TOTAL)
            return (self.rules["x"],)

    operator = opened(ByDescriptor())
    operator.begin(0)
    operator.process_broadcast(7)
    operator.process("k", None)
    assert operator._runner.outputs["main"].rows == [(7,)]
    with raising(UserFunctionError, state="total", expected="map"):
        operator.process("k", "value")


def test_a_function_without_broadcast_rows() -> None:
    """Catches: broadcast rows that go nowhere."""

    class Plain(KeyedProcessFunction):
        def process_element(self, row: Any, ctx: Any) -> Any: ...

    operator = opened(Plain())
    assert operator.broadcast_backend is None
    operator.begin(0)
    with raising(StateDeclarationError, operator="op", option="process_broadcast_element"):
        operator.process_broadcast(1)


def test_roll_back() -> None:
    """Catches: rules of a failed attempt that stay."""
    operator = opened(Limits())
    operator.begin(0)
    operator.process_broadcast(("a", 10))
    operator.end()
    with operator.snapshot() as point:
        operator.begin(0)
        operator.process_broadcast(("a", 20))
        operator.process_broadcast(("b", 1))
        operator.roll_back(point)
    operator.begin(0)
    operator.process("k", lambda f, c: [(dict(f.limits),)])
    assert operator.end().main == [({"a": [10]},)]
    operator.check_invariants()
    assert operator.statistics().broadcast is not None


def test_stored_once_restored_everywhere() -> None:
    """Catches: slots whose broadcast files differ, or a slot of another parallelism that gets no rules."""

    def slot(number: int, of: int) -> KeyedOperator:
        backend = HeapKeyedStateBackend(KeySchema.from_python(str), key_group_range=range_for_slot(128, of, number))
        operator = KeyedOperator("limits", Limits(), backend)
        operator.open()
        return operator

    files = []
    for number in range(3):
        operator = slot(number, 3)
        backend = operator.broadcast_backend
        assert backend is not None
        with operator.snapshot() as point:
            operator.begin(0)
            for rule in (("a", 10), ("b", 3), ("a", 5)):
                operator.process_broadcast(rule)
            operator.end()
            assert point.broadcast is not None
            files.append(write_delta(backend, point.broadcast).data)
        with backend.snapshot() as snapshot:
            files.append(b"".join(BaseWriter(backend, snapshot)))
    assert files[0::2] == [files[0]] * 3
    assert files[1::2] == [files[1]] * 3

    for data in files[:2]:
        operator = slot(4, 5)
        assert operator.broadcast_backend is not None
        restore([StateFileReader.of_bytes(data)], operator.broadcast_backend)
        operator.begin(0)
        key = next(k for k in map(str, range(1000)) if operator.backend.context.grouper(k) > 110)
        operator.process(key, lambda f, c: [(dict(f.limits),)])
        assert operator.end().main == [({"a": [10, 5], "b": [3]},)]
